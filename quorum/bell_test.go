package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A deaf node grants and refuses, but cannot push: for example, its user may not subscribe.
type deaf struct{ *gate }

func (deaf) Wait(context.Context, string, store.ID) error { return errors.New("NOPERM") }

func TestWaiterDoesNotSpinIfItsBellCannotPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*gate
		var nodes []quorum.Node
		for i := range 3 {
			g := &gate{Store: memstore.New()}
			gates = append(gates, g)
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: deaf{g}})
		}
		q := openQuorum(t, nodes, quorum.Options{Report: func(string, error) {}})
		c, err := holdfast.New(q)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held := request("n")
		mustAcquire(t, q, held)
		time.Sleep(time.Second)
		calls := func() (n int) {
			for _, g := range gates {
				n += g.count()
			}
			return n
		}
		before := calls()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "n"); err == nil {
			t.Fatal("granted twice")
		}
		if n := calls() - before; n > 1000 {
			t.Errorf("a waiter made %d calls in 10 s", n)
		}
		// It is granted soon after the release.
		done := make(chan time.Time)
		go func() {
			l, err := c.Lock(t.Context(), "n")
			if err != nil {
				t.Error(err)
			}
			done <- time.Now()
			l.Unlock(t.Context())
		}()
		time.Sleep(5 * time.Second)
		released := time.Now()
		if err := q.Release(t.Context(), "n", held.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		if took := (<-done).Sub(released); took > 500*time.Millisecond {
			t.Errorf("granted %v after the release", took)
		}
	})
}
