package memstore_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestWaiterKeepsItsPlaceForExactlyOneHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.TTL = time.Hour
		granted(t, s, a)
		b := waits(t, s, exclusive())
		c := waits(t, s, exclusive())
		for range 3 {
			time.Sleep(heartbeat)
			for i, w := range []store.Request{b, c} {
				if r := refused(t, s, w); r.Place != i+1 || r.Waiters != 1 {
					t.Fatalf("refusal %+v of waiter %d", r, i+1)
				}
			}
		}
		dropped := waiting(t, s, b) // a call in Wait is no heartbeat
		time.Sleep(heartbeat)
		dropped.sleeps(t)
		time.Sleep(time.Nanosecond)
		if r := refused(t, s, exclusive()); r.Waiters != 0 {
			t.Errorf("%d waiters, want none", r.Waiters)
		}
		dropped.wakes(t)
		release(t, s, a)
	})
}

func TestRequestWithoutQueueGivesUpItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := reader(), reader()
		granted(t, s, a)
		head := waits(t, s, exclusive())
		b = waits(t, s, b)
		next := waiting(t, s, b)
		head.Queue = false
		if r := refused(t, s, head); r.Place != 0 || r.Waiters != 1 {
			t.Errorf("refusal %+v", r)
		}
		next.wakes(t)
		b.Queue = false
		granted(t, s, b)
		leave(t, s, a, b)
	})
}

// The store has no timer: any call on the name notices the expiry.
func TestExpiryNoticedByAnotherCallWakesTheHead(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.TTL = heartbeat - 1
		granted(t, s, a)
		head := waits(t, s, exclusive())
		c := waiting(t, s, head)
		time.Sleep(a.TTL)
		c.sleeps(t)
		refused(t, s, exclusive())
		c.wakes(t)
		leave(t, s, head)
	})
}

func TestNeighbouringReadersAreWokenOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		holder, last := exclusive(), exclusive()
		granted(t, s, holder)
		var readers []store.Request
		var calls []call
		for range 5 {
			r := waits(t, s, reader())
			readers = append(readers, r)
			calls = append(calls, waiting(t, s, r))
		}
		last = waits(t, s, last)
		end := waiting(t, s, last)
		release(t, s, holder)
		for i, r := range readers {
			calls[i].wakes(t) // by the grant of the reader before it
			if i+1 < len(readers) {
				calls[i+1].sleeps(t)
			}
			granted(t, s, r)
		}
		for _, r := range readers {
			end.sleeps(t)
			release(t, s, r)
		}
		end.wakes(t)
		granted(t, s, last)
		release(t, s, last)
	})
}

func TestWaiterIsNotWokenWithoutReason(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := reader(), reader()
		granted(t, s, a)
		granted(t, s, b)
		head, next, last := waits(t, s, exclusive()), waits(t, s, exclusive()), waits(t, s, exclusive())
		c, d := waiting(t, s, head), waiting(t, s, next)
		renew(t, s, renewal(a))
		release(t, s, a) // b still holds the name
		leave(t, s, last)
		refused(t, s, reader())
		c.sleeps(t)
		d.sleeps(t)
		release(t, s, b)
		c.wakes(t)
		d.sleeps(t)
		granted(t, s, head)
		d.sleeps(t)
		leave(t, s, head, next)
		d.wakes(t)
	})
}

func TestEndedClosureWakesNoMoreWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b, c, d := waits(t, s, exclusive()), waits(t, s, exclusive()), waits(t, s, exclusive())
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Cooling, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		granted(t, s, b)
		last := waiting(t, s, d)
		leave(t, s, c)
		last.sleeps(t)
		leave(t, s, b, d)
	})
}

func TestWakeUpLastsUntilTheNextRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, exclusive())
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Cooling, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		waiting(t, s, b).wakes(t)
		waiting(t, s, b).wakes(t) // there was no request in between
		refused(t, s, b)
		c, d := waiting(t, s, b), waiting(t, s, b)
		c.sleeps(t)
		leave(t, s, b)
		c.wakes(t)
		d.wakes(t)
		time.Sleep(time.Second)
		leave(t, s, a)
	})
}

func TestWaitReturnsAtOnceForAnIdentityThatIsNotQueued(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := exclusive(), exclusive()
		waiting(t, s, b).wakes(t)
		granted(t, s, a)
		waiting(t, s, a).wakes(t)
		waiting(t, s, b).wakes(t)
		release(t, s, a)
	})
}
