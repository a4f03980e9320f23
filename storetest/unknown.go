package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// G5: a request whose reply was lost is repeated or undone under the same identity.
var unknownTests = []test{
	{name: "a grant whose reply was lost has a token above the blocks of earlier holders", run: func(s *suite) {
		one, two, name := s.open2()
		two.exclusive(name).granted().release() // from here on, tokens that a connection remembers are outdated
		for i := range 20 {
			a := one.exclusive(name)
			a.req.Tokens = 5
			a.granted()
			for range 3 {
				a.renewed(store.Extended, 1000) // as a client does for hand-overs
			}
			a.release()
			b := two.exclusive(name)
			b.alive = true
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
			b.Acquire(ctx, b.req) // the reply is ignored, as if it was lost
			cancel()
			b.granted().above(a.last())
			b.release()
		}
	}},
	{name: "concurrent renewals of one grant never find it gone", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).granted()
		s.parallel(100, 10, func(i int) error {
			r := a.renewal()
			r.Tokens = i % 2 * 10
			c := one
			if i%10 == 0 { // as after a lost reply
				c = two
			}
			out, err := c.renew(r)
			if err == nil && out[0].Status == store.Gone {
				return errors.New("a grant that is held is reported as gone")
			}
			return nil // other outcomes are allowed, since the renewals may conflict
		})
	}},
	{name: "a call whose context has ended returns, and Leave undoes it", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name)
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		for call, f := range a.calls(a) {
			returned := make(chan error, 1)
			go func() { returned <- f(dead) }()
			select {
			case <-returned:
			case <-time.After(patience):
				s.Fatalf("%s does not return though its context has ended", call)
			}
		}
		a.leave()
		two.exclusive(name).granted()
	}},
	{name: "calls cancelled at any moment can be undone", run: func(s *suite) {
		one, two, name := s.open2()
		for i := range 50 {
			a := one.exclusive(name).short()
			a.req.Queue = true
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*50*time.Microsecond)
			a.try(ctx)
			cancel()
			a.leave()
		}
		// If a request arrives after its Leave, its grant lasts for its TTL at most.
		two.exclusive(name).within(s.TTL + s.caps.Heartbeat + s.Slack)
	}},
	{name: "requests cancelled at any moment under load keep nobody waiting", run: cancelledUnderLoad},
	{name: "a call repeated after it was cancelled keeps its grant", run: func(s *suite) {
		// Concurrent calls may be sent in batches, whose replies arrive after the repeated calls.
		one := s.open()
		const calls, rounds = 64, 10
		for round := range rounds {
			claims := make([]*claim, calls)
			for i := range claims {
				claims[i] = one.exclusive(s.name())
			}
			s.parallel(calls, calls, func(i int) error {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(round)*200*time.Microsecond)
				_, err := claims[i].try(ctx)
				cancel()
				if err != nil {
					if _, err = claims[i].attempt(); err != nil {
						err = fmt.Errorf("repeated Acquire: %w", err)
					}
				}
				return err
			})
			for _, a := range claims {
				a.release()
			}
		}
	}},
}

// cancelledUnderLoad makes impatient clients cancel their requests after some milliseconds and leave,
// while a patient client wants the same names. All grants would last longer than the test. So a
// patient request is not served if a request that was cancelled takes effect after its Leave.
func cancelledUnderLoad(s *suite) {
	const names, most = 200, 3 * time.Second
	impatient, patient := []*conn{s.open(), s.open()}, s.open()
	base := s.name()
	random := func() string { return fmt.Sprint(base, "/", rand.IntN(names)) }
	// take waits for a name, holds it, and ends its claim. It reports whether the name was granted.
	take := func(c *conn, limit, hold time.Duration) (granted bool, err error) {
		k := c.newClaim(random(), store.Exclusive, 1, 0)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if granted = k.drive(ctx) == nil; granted {
			time.Sleep(hold)
			return true, k.tryRelease(store.Keep{})
		}
		return false, s.call(k.calls(nil)["Leave"])
	}
	// The number of calls is bounded because fake time stands still while goroutines are busy.
	var hurry, rest sync.WaitGroup
	begin := time.Now()
	for i := range 60 {
		hurry.Go(func() {
			for n := 0; n < 200 && time.Since(begin) < most && !s.Failed(); n++ {
				if _, err := take(impatient[i%2], rand.N(10*time.Millisecond), 0); err != nil {
					s.Errorf("the end of an impatient request: %v", err)
				}
			}
		})
	}
	var done atomic.Bool
	for range 20 {
		rest.Go(func() {
			for n := 0; n < 200 && !done.Load() && !s.Failed(); n++ {
				if granted, err := take(patient, patience, rand.N(2*time.Millisecond)); !granted || err != nil {
					s.Errorf("a patient request: granted %v, %v", granted, err)
				}
			}
		})
	}
	hurry.Wait()
	done.Store(true)
	rest.Wait()
	for i := range names {
		k := patient.newClaim(fmt.Sprint(base, "/", i), store.Exclusive, 1, 0)
		k.granted().release()
	}
}
