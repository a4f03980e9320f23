package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A call that got no reply is repeated under the same identity. Undoing the first one when its
// reply comes at last would end the grant that the second one was told of.
func TestALateReplyDoesNotEndTheGrantOfARepeatedCall(t *testing.T) {
	c := gather(t)
	const n = 20
	ctx, cancel := context.WithCancel(t.Context())
	var reqs []store.Request
	var given, again []<-chan result
	for i := range n {
		req := plain(fmt.Sprint("n", i))
		reqs, given = append(reqs, req), append(given, c.later(ctx, req))
	}
	last := reqs[n-1]
	arrived := c.proxy.HoldRepliesAfter(func(b []byte) bool { return bytes.Contains(b, []byte(last.ID.String())) })
	c.proxy.ToServer.Heal()
	<-arrived
	servers.Poll(t, 10*time.Second, func() error {
		if c.server.Must("EXISTS", rediscore.Prefix+"lock:"+last.Name) != int64(1) {
			return errors.New("it is not taken")
		}
		return nil
	})
	cancel()
	for i := range given {
		if r := <-given[i]; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("%+v, %v", r.Answer, r.err)
		}
	}
	for i := range reqs {
		done := make(chan result, 1)
		again = append(again, done)
		go func() {
			answer, err := c.s.Acquire(c.ctx(), reqs[i])
			done <- result{answer, err}
		}()
	}
	c.proxy.Heal()
	c.granted(again...)
	servers.Poll(t, 10*time.Second, func() error {
		if left := rediscore.InFlight(c.s.Store); left > 0 {
			return fmt.Errorf("%d calls in flight", left)
		}
		return nil
	})
	for i := range reqs {
		if err := c.s.Release(c.ctx(), reqs[i].Name, reqs[i].ID, store.Keep{}); err != nil {
			t.Errorf("%s: %v", reqs[i].Name, err)
		}
	}
}
