package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// reports has what Report was told.
type reports chan string

func (r reports) add(node string, err error) { r <- fmt.Sprintf("%s: %v", node, err) }

// want checks what was reported since the last time, in any order.
func (r reports) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for len(r) > 0 {
		got = append(got, <-r)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestErrorOfACallThatNoNodeConfirmedSaysSo(t *testing.T) {
	for _, name := range []string{"another Acquire", "Renew", "Release", "Leave", "Break", "List", "lookup"} {
		run(t, name, func(t *testing.T) {
			nodes, q := gates(t, 3, quorum.Options{})
			held := lease(t, q)
			setAll(nodes, down, nil)
			calls := suites.Calls(q, held)
			calls["lookup"] = func(ctx context.Context) error { _, err := q.List(ctx, store.Query{Name: "n"}); return err }
			err := calls[name](t.Context())
			if err == nil || !strings.Contains(err.Error(), ": 0 of 3 nodes confirmed, 2 are needed: node0: ") {
				t.Errorf("%s: %v, want that no node confirmed", name, err)
			}
		})
	}
}

// One call asks the nodes again and again.
func TestNodesThatAreDownDuringALockAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(reports, 100)
		nodes, q := gates(t, 3, quorum.Options{Report: told.add})
		c := suites.Client(t, q)
		setAll(nodes[1:], down, nil)
		if lease, err := c.Lock(t.Context(), "n", holdfast.Wait(10*time.Second)); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatalf("%v, %v, want ErrUnavailable", lease, err)
		}
		if n := nodes[1].count("Acquire"); n < 5 {
			t.Errorf("a node that is down was asked %d times, want repeated requests", n)
		}
		told.want(t, "node1: connection reset", "node2: connection reset")
		setAll(nodes[1:], nil, nil)
		for range 10 {
			time.Sleep(500 * time.Millisecond)
			lease, err := c.Lock(t.Context(), "n")
			must(t, err)
			synctest.Wait() // a node that is not needed is not asked any more after Unlock
			lease.Unlock(t.Context())
		}
		told.want(t, "node1: <nil>", "node2: <nil>")
	})
}

func TestNodeThatRestartedIsReportedWithTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(reports, 100)
		nodes, q := serverNodes(t, time.Hour, quorum.Options{Report: told.add})
		wantGranted(t, q, true, "at first")
		time.Sleep(time.Minute)
		for _, n := range nodes[1:] {
			n.restart("new"+n.id, 9*time.Second)
		}
		const reason = "its server restarted 9s ago and may have lost locks: excluded for another 21s"
		want := []string{"node1: " + reason, "node2: " + reason}
		if _, err := q.Acquire(t.Context(), request("n")); err == nil || !strings.HasSuffix(err.Error(), strings.Join(want, "; ")) {
			t.Errorf("%v, want %q", err, want)
		}
		synctest.Wait()
		told.want(t, want...)
		for range 25 {
			time.Sleep(time.Second)
			q.Acquire(t.Context(), request("n"))
			synctest.Wait()
		}
		told.want(t, "node1: <nil>", "node2: <nil>")
	})
}
