package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestWaitersAreServedInOrderOfArrival(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		holder := exclusive()
		granted(t, s, holder)
		queue := []store.Request{queued(exclusive()), queued(exclusive()), queued(exclusive())}
		for i, w := range queue {
			if r := refused(t, s, w); r.Place != i+1 || r.Waiters != i {
				t.Errorf("refusal %+v", r)
			}
		}
		for i, next := range queue {
			release(t, s, holder)
			for _, late := range queue[i+1:] { // asking early does not help
				refused(t, s, late)
			}
			refused(t, s, exclusive())
			if a := granted(t, s, next); a.Waiters != len(queue)-i-1 {
				t.Errorf("%d waiters", a.Waiters)
			}
			holder = next
		}
		release(t, s, holder)
	})
}

func TestAReaderDoesNotOvertakeAWriter(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, w, b := reader(), exclusive(), reader()
		granted(t, s, a)
		w = waits(t, s, w)
		b = waits(t, s, b)
		release(t, s, a)
		refused(t, s, b)
		granted(t, s, w)
		release(t, s, w)
		granted(t, s, b)
		release(t, s, b)
	})
}

func TestASmallRequestDoesNotOvertakeALargeOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, large, small := permits(2, 4), permits(3, 4), permits(1, 4)
		granted(t, s, a)
		large = waits(t, s, large)
		small = waits(t, s, small)
		refused(t, s, permits(1, 4))
		leave(t, s, large)
		granted(t, s, small)
		leave(t, s, a, small)
	})
}

func TestNeighbouringReadersGoTogether(t *testing.T) {
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
			calls[i].wakes(t) // by the grant of the one before
			if i+1 < len(readers) {
				calls[i+1].sleeps(t)
			}
			granted(t, s, r)
		}
		end.sleeps(t)
		for _, r := range readers {
			end.sleeps(t)
			release(t, s, r)
		}
		end.wakes(t)
		granted(t, s, last)
		release(t, s, last)
	})
}

func TestAWaiterKeepsItsPlaceByAskingAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.TTL = time.Hour
		granted(t, s, a)
		b := waits(t, s, exclusive())
		c := waits(t, s, exclusive())
		for range 10 {
			time.Sleep(heartbeat) // to the last moment
			for i, w := range []store.Request{b, c} {
				if r := refused(t, s, w); r.Place != i+1 || r.Waiters != 1 {
					t.Fatalf("refusal %+v of waiter %d", r, i+1)
				}
			}
		}
		leave(t, s, a, b, c)
	})
}

func TestASilentWaiterIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, exclusive())
		dead := waiting(t, s, b) // waiting is no sign of life, asking is
		time.Sleep(heartbeat)
		dead.sleeps(t)
		time.Sleep(time.Nanosecond)
		if r := refused(t, s, exclusive()); r.Waiters != 0 {
			t.Errorf("%d waiters", r.Waiters)
		}
		dead.wakes(t)
		release(t, s, a)
		c := exclusive()
		granted(t, s, c)
		if r := refused(t, s, b); r.Place != 1 { // at the end
			t.Errorf("place %d", r.Place)
		}
		leave(t, s, b, c)
	})
}

func TestADeadHeadDelaysTheNextByAHeartbeatAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		for range 3 {
			waits(t, s, exclusive()) // and is never heard of again
		}
		b := waits(t, s, exclusive())
		release(t, s, a)
		start := time.Now()
		for {
			answer, err := s.Acquire(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Granted() {
				break
			}
			time.Sleep(answer.Refusal.Again)
		}
		if took := time.Since(start); took > heartbeat+time.Millisecond {
			t.Errorf("took %v", took)
		}
		release(t, s, b)
	})
}

func TestAHolderThatDiesIsFollowedWhenItsTTLIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		start := time.Now()
		b := queued(exclusive())
		asked := 0
		for {
			answer, err := s.Acquire(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			asked++
			if answer.Granted() {
				break
			}
			time.Sleep(answer.Refusal.Again)
		}
		if took := time.Since(start); took > ttl+time.Millisecond {
			t.Errorf("took %v, want %v", took, ttl)
		}
		if asked > 30 {
			t.Errorf("asked %d times", asked)
		}
		release(t, s, b)
	})
}

func TestAskingWithoutAQueueGivesUpThePlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, exclusive())
		c := waits(t, s, exclusive())
		b.Queue = false
		if r := refused(t, s, b); r.Place != 0 || r.Waiters != 1 {
			t.Errorf("refusal %+v", r)
		}
		c.Queue = false
		release(t, s, a)
		granted(t, s, c) // it was the next
		release(t, s, c)
	})
}

func TestAQueuedIdentityStaysWithItsFirstRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, reader())
		b.Mode = store.Exclusive
		_, err := s.Acquire(t.Context(), b)
		is(t, err, store.ErrInvalid)
		release(t, s, a)
	})
}

func TestAWaiterIsWoken(t *testing.T) {
	// Each wakes the head of the queue, which is next to be granted or finds the name closed.
	for _, test := range []struct {
		name         string
		holder, head store.Request
		event        func(t *testing.T, s *memstore.Store, holder store.Request)
		closed       bool
	}{
		{
			name: "by a release", holder: exclusive(), head: exclusive(),
			event: func(t *testing.T, s *memstore.Store, holder store.Request) { release(t, s, holder) },
		},
		{
			name: "by a holder that leaves", holder: exclusive(), head: exclusive(),
			event: func(t *testing.T, s *memstore.Store, holder store.Request) { leave(t, s, holder) },
		},
		{
			name: "by a break", holder: exclusive(), head: reader(),
			event: func(t *testing.T, s *memstore.Store, holder store.Request) {
				if err := s.Break(t.Context(), name, holder.ID); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "by a step down", holder: exclusive(), head: reader(),
			event: func(t *testing.T, s *memstore.Store, holder store.Request) {
				r := renewal(holder)
				r.Mode = store.Shared
				renew(t, s, r)
			},
		},
		{
			name: "by a release of permits", holder: permits(4, 4), head: permits(2, 4),
			event: func(t *testing.T, s *memstore.Store, holder store.Request) { release(t, s, holder) },
		},
		{
			name: "by a look at an expired grant", holder: exclusive(), head: exclusive(),
			event: func(t *testing.T, s *memstore.Store, holder store.Request) {
				time.Sleep(heartbeat - 1) // which is when it expires
				refused(t, s, exclusive())
			},
		},
		{
			name: "by a name closed as done", holder: exclusive(), head: exclusive(), closed: true,
			event: func(t *testing.T, s *memstore.Store, holder store.Request) {
				if err := s.Release(t.Context(), name, holder.ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "by a name closed to cool", holder: exclusive(), head: exclusive(), closed: true,
			event: func(t *testing.T, s *memstore.Store, holder store.Request) {
				if err := s.Release(t.Context(), name, holder.ID, store.Keep{State: store.Cooling, For: time.Hour}); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			finish := func(t *testing.T, s *memstore.Store, head store.Request) {
				if test.closed {
					if r := refused(t, s, head); len(r.Holders) != 1 || r.Holders[0].State == store.Held {
						t.Errorf("refusal %+v", r)
					}
				} else {
					granted(t, s, head)
				}
				leave(t, s, test.holder, head)
				s.Break(t.Context(), name, test.holder.ID)
			}
			test.holder.TTL = heartbeat - 1
			t.Run("while it waits", func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memstore.Store) {
					granted(t, s, test.holder)
					head := waits(t, s, test.head)
					c := waiting(t, s, head)
					c.sleeps(t)
					test.event(t, s, test.holder)
					c.wakes(t)
					finish(t, s, head)
				})
			})
			t.Run("before it waits", func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memstore.Store) {
					granted(t, s, test.holder)
					head := waits(t, s, test.head)
					test.event(t, s, test.holder)
					waiting(t, s, head).wakes(t)
					finish(t, s, head)
				})
			})
		})
	}
}

func TestTheNextIsWokenWhenTheHeadGoes(t *testing.T) {
	for _, test := range []struct {
		name string
		goes func(t *testing.T, s *memstore.Store, head, next store.Request)
	}{
		{"because it leaves", func(t *testing.T, s *memstore.Store, head, next store.Request) {
			leave(t, s, head)
		}},
		{"because it is silent", func(t *testing.T, s *memstore.Store, head, next store.Request) {
			time.Sleep(heartbeat / 2)
			refused(t, s, next)
			time.Sleep(heartbeat/2 + 1)
			if _, err := s.List(t.Context(), store.Query{Name: name}); err != nil {
				t.Fatal(err)
			}
		}},
		{"because it asks without a queue", func(t *testing.T, s *memstore.Store, head, next store.Request) {
			head.Queue = false
			refused(t, s, head)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				a := reader()
				granted(t, s, a)
				head := waits(t, s, exclusive())
				next := waits(t, s, reader())
				test.goes(t, s, head, next)
				waiting(t, s, next).wakes(t)
				granted(t, s, next)
				leave(t, s, a, next)
			})
		})
	}
}

func TestAQueueBehindAClosedNameIsWokenInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		var queue []store.Request
		var calls []call
		for range 4 {
			w := waits(t, s, exclusive())
			queue = append(queue, w)
			calls = append(calls, waiting(t, s, w))
		}
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Cooling, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		for i, w := range queue {
			calls[i].wakes(t)
			refused(t, s, w)
			leave(t, s, w)
		}
		time.Sleep(time.Second)
		b := exclusive()
		granted(t, s, b)
		release(t, s, b)
	})
}

func TestAllWaitersHearThatTheWorkIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		stays := waits(t, s, exclusive())
		other := waits(t, s, exclusive())
		c, d := waiting(t, s, stays), waiting(t, s, other)
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Done, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		c.wakes(t)
		refused(t, s, stays)
		d.wakes(t) // although the head did not go
		leave(t, s, stays, other)
		time.Sleep(time.Second)
		leave(t, s, a)
	})
}

func TestAWaiterSleepsWhileNothingChangesForIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := reader(), reader()
		granted(t, s, a)
		granted(t, s, b)
		head, next, last := waits(t, s, exclusive()), waits(t, s, exclusive()), waits(t, s, exclusive())
		c, d := waiting(t, s, head), waiting(t, s, next)
		renew(t, s, renewal(a))
		release(t, s, a) // b is still there
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

func TestAClosureThatEndedWakesNobodyAnyMore(t *testing.T) {
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

func TestARefusalEndsAnEarlierWakeUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, exclusive())
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Cooling, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		waiting(t, s, b).wakes(t)
		waiting(t, s, b).wakes(t) // nobody asked in between
		refused(t, s, b)
		c := waiting(t, s, b)
		c.sleeps(t)
		leave(t, s, b)
		time.Sleep(time.Second)
		leave(t, s, a)
		c.wakes(t)
	})
}

func TestTwoCallsMayWaitForOneIdentity(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, exclusive())
		c, d := waiting(t, s, b), waiting(t, s, b)
		release(t, s, a)
		c.wakes(t)
		d.wakes(t)
		leave(t, s, b)
	})
}

func TestWaitingForWhatIsNotQueuedReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := exclusive(), exclusive()
		waiting(t, s, b).wakes(t)
		granted(t, s, a)
		waiting(t, s, a).wakes(t)
		waiting(t, s, b).wakes(t)
		release(t, s, a)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, exclusive())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		c := waitingWith(ctx, s, b)
		if err := <-c.done; err != context.DeadlineExceeded || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		leave(t, s, a, b)
	})
}

func TestLeaveUndoesWhatNobodyHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := exclusive(), exclusive()
		leave(t, s, a) // nothing to undo
		granted(t, s, a)
		leave(t, s, b)
		if renew(t, s, renewal(a)).Status != store.Extended {
			t.Fatal("another's leave took the grant")
		}
		leave(t, s, a, a)
		granted(t, s, b)
		release(t, s, b)
	})
}
