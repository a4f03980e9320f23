package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func testOp(t *testing.T, nodes int) *op {
	return &op{ctx: t.Context(), signal: make(chan struct{}, 1), pending: make([]bool, nodes)}
}

// Replies arrive at the moment when the limit of next passes. Each of them is returned once, and
// next reports once for each limit that it has passed.
func TestRepliesThatArriveWithTheLimitAreReturnedOnce(t *testing.T) {
	const limit = 50 * time.Millisecond
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			o := testOp(t, 5)
			for i, at := range []time.Duration{1, limit, limit, 2*limit + 1, 2*limit + 2} {
				time.AfterFunc(at, func() { o.deliver(&reply{node: i}) })
			}
			begin, passed := time.Now(), time.Duration(0)
			var seen [5]bool
			for n := 0; n < 5; {
				r, ok := o.next(t.Context(), limit, min(3, 5-n))
				switch d := time.Since(begin); {
				case !ok && d-passed < limit:
					t.Fatalf("no reply after %v and %v", passed, d)
				case !ok:
					passed = d
				case seen[r.node]:
					t.Fatalf("reply of node %d twice", r.node)
				default:
					seen[r.node] = true
					n++
				}
			}
			if d := time.Since(begin); d != 2*limit+2 {
				t.Fatalf("the last reply after %v", d)
			}
		})
	}
}

func TestNextReturnsAllRepliesBeforeItReportsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOp(t, 3)
		for i := range 2 {
			time.AfterFunc(time.Millisecond, func() { o.deliver(&reply{node: i}) })
		}
		begin := time.Now()
		for i := range 3 {
			_, ok := o.next(t.Context(), time.Second, 3)
			if d := time.Since(begin); ok != (i < 2) || d != time.Second {
				t.Errorf("call %d: %v after %v", i, ok, d)
			}
		}
	})
}

func TestNextReturnsRepliesAlthoughItsContextHasEnded(t *testing.T) {
	o := testOp(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 {
		o.deliver(&reply{node: i})
	}
	for range 2 {
		if _, ok := o.next(ctx, 0, 3); !ok {
			t.Error("no reply")
		}
	}
	if _, ok := o.next(ctx, 0, 1); ok {
		t.Error("a third reply")
	}
}

// Replies, limits and cancellations race. No reply is lost, and no caller or node blocks.
func TestNoReplyIsLost(t *testing.T) {
	failure := errors.New("failure")
	for round := range 2000 {
		const nodes = 5
		o := testOp(t, nodes)
		for i := range nodes {
			go func() {
				r := reply{node: i}
				if (round+i)%4 == 0 {
					r.err = failure
				}
				o.deliver(&r)
			}()
		}
		for n := 0; n < nodes; {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			if _, ok := o.next(ctx, time.Duration(round%7)*time.Microsecond, nodes-n); ok {
				n++
			}
		}
		if len(o.signal) > 0 || len(o.replies) > 0 || o.wanted > 0 {
			t.Fatal("something is left")
		}
	}
}
