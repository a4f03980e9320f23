package faults

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// The tests of a store share its servers, because some take long to start. They run one after the other.
func TestHoldersAndWaitersThatFail(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, b *bed) {
		for _, test := range []struct {
			name string
			run  func(t *testing.T, b *bed)
		}{
			{"the lock of a killed holder is free after its TTL", freedByTTL},
			{"the late write of a stopped holder is refused", lateWriteRefused},
			{"a holder whose connections hang knows before the next is granted", func(t *testing.T, b *bed) { knowsWhenCutOff(t, b, wires.hold) }},
			{"a holder whose connections end knows before the next is granted", func(t *testing.T, b *bed) { knowsWhenCutOff(t, b, wires.cut) }},
			{"a lost reply changes nothing", repliesLost},
			{"fifty waiters are served in order while half are cancelled or killed", fiftyWaiters},
		} {
			t.Run(test.name, func(t *testing.T) {
				b.t = t
				test.run(t, b)
			})
		}
	})
}

func freedByTTL(t *testing.T, b *bed) {
	h := new(History)
	holder := spawn(t, h, order{Role: "hold", URL: b.url, Name: "n", TTL: b.short(), Who: "killed"}, nil)
	holder.hear("held")
	client := b.open()
	next := record(h).later(t, t.Context(), client, "n", b.short())
	b.queued(client, "n", 1)
	holder.kill()
	next.get(b.short() + soon).mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client)
}

func lateWriteRefused(t *testing.T, b *bed) {
	h, resource := new(History), startShared(t)
	holder := spawn(t, h, order{Role: "hold", URL: b.url, Resource: resource.Addr(), Name: "n", TTL: b.short(), Who: "stopped"}, nil)
	holder.hear("held")
	holder.signal(syscall.SIGSTOP)
	h.Pause("stopped")

	client := b.open()
	next := record(h).later(t, t.Context(), client, "n", b.short()).get(b.short() + soon)
	guarded, err := dialShared(resource.Addr())
	if err != nil {
		t.Fatal(err)
	}
	value, err := guarded.read("n", next.Token())
	if err != nil {
		t.Fatal(err)
	}

	// The stopped holder continues, and writes before it checks its lease.
	holder.tell("write")
	holder.signal(syscall.SIGCONT)
	holder.hear("write: stale fencing token")
	if err := guarded.write("n", next.Token(), value); err != nil {
		t.Fatal(err)
	}
	holder.tell("lease")
	holder.hear("lost: true")
	holder.finish()
	next.mustUnlock(t)
	check(t, h.Check())
	check(t, checkShared(resource, map[string]int64{"n": 1}, nil))
	b.clean(soon, client)
}

func knowsWhenCutOff(t *testing.T, b *bed, cut func(wires)) {
	h := new(History)
	cutOff, w := b.openBy()
	other := b.open()
	holder := record(h).must(t, cutOff, "n", b.short())
	over := holder.watch()
	waiting := record(h).later(t, t.Context(), other, "n", b.short())
	b.queued(other, "n", 1)
	eventually(t, "the lease is renewed", renewed(holder))
	cut(w)

	next := waiting.get(b.short() + soon)
	next.watch()
	ends(t, "the cut off holder's lease ends", over)
	w.heal() // the held bytes arrive too late to change anything
	eventually(t, "the next holder's lease is renewed", renewed(next))
	next.mustUnlock(t)
	record(h).must(t, cutOff, "n", b.short()).mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, cutOff, other)
}

// renewed returns a check that succeeds when the lease has been renewed.
func renewed(h *held) func() error {
	before := h.Deadline()
	return func() error {
		if err := h.Err(); err != nil {
			return err
		}
		if !h.Deadline().After(before) {
			return errNotYet
		}
		return nil
	}
}

// A reply to a request, a renewal and a release is lost, one after the other.
func repliesLost(t *testing.T, b *bed) {
	// A store may handle a name whose requests had no reply in another way for a while.
	const acquired, released = "acquired", "released"
	h := new(History)
	client, w := b.openBy()
	b.warmUp(client, acquired)

	answered := w.holdRepliesAfter(t, acquired)
	asked := record(h).later(t, t.Context(), client, acquired, 3*shortTTL)
	answered()
	granted := storedToken(t, b, acquired)
	w.lose()
	lease := asked.get(soon)
	over := lease.watch()
	if lease.Token() != granted {
		t.Errorf("token %d, but the store granted %d: the first grant was not recognised", lease.Token(), granted)
	}
	other := b.open()
	wantHeld(t, other, acquired)

	for range 2 {
		w.holdRepliesAfter(t, acquired)() // it is the reply to a renewal, because there are no other requests
		check := renewed(lease)
		w.lose()
		eventually(t, "the lease is renewed", check)
	}
	lease.mustLive(t, over)
	lease.mustUnlock(t)

	again, w := b.openBy() // the first client may have connections that are dead since then
	b.warmUp(again, released)
	lease = record(h).must(t, again, released, longTTL)
	answered = w.holdRepliesAfter(t, released)
	unlocked := make(chan error, 1)
	go func() { unlocked <- lease.unlock(t.Context()) }()
	answered()
	next := record(h).later(t, t.Context(), other, released, longTTL).get(soon)
	w.lose() // the release is repeated, and must not affect the other holder
	select {
	case err := <-unlocked:
		check(t, err)
	case <-time.After(limit):
		t.Fatal("Unlock does not return")
	}
	if token := storedToken(t, b, released); token != next.Token() {
		t.Errorf("the store has a lock with token %d, want %d", token, next.Token())
	}
	check(t, next.Renew(t.Context()))
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client, again, other)
}

// storedToken returns the token of the holder that the store reports.
func storedToken(t testing.TB, b *bed, name string) (token int64) {
	t.Helper()
	client := b.open()
	defer client.Close()
	// The bytes in a proxy may be only a part of the reply, or belong to an earlier one.
	eventually(t, "one holds "+name, func() error {
		info, err := client.Inspect(t.Context(), name)
		if err == nil && len(info.Holders) != 1 {
			err = fmt.Errorf("want one holder: %+v", info)
		}
		if err == nil {
			token = info.Holders[0].Token
		}
		return err
	})
	return token
}

func fiftyWaiters(t *testing.T, b *bed) {
	const children, perChild, locals = 3, 5, 35 // every third local waiter is cancelled
	const ttl = longTTL / 3                     // of a child that is killed while it holds the lock
	h := new(History)
	first := b.open()
	holder := record(h).must(t, first, "n", ttl)
	var dead []*child
	for range children {
		dead = append(dead, spawn(t, h, order{Role: "wait", URL: b.url, Name: "n", TTL: ttl, Clients: perChild, Who: "killed"}, nil))
	}
	var clients []*holdfast.Client
	var patient, cancelled []*turn
	var cancels []func()
	for i := range locals {
		client := b.open(holdfast.WithOwner(fmt.Sprint("local", i)))
		clients = append(clients, client)
		if i == locals-1 { // the last one in the queue is patient: nobody removes the rows of dead waiters behind it
			b.queued(first, "n", children*perChild+i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waiting := record(h).later(t, ctx, client, "n", ttl)
		if i%3 == 0 {
			cancelled, cancels = append(cancelled, waiting), append(cancels, cancel)
		} else {
			patient = append(patient, waiting)
		}
	}
	b.queued(first, "n", children*perChild+locals)
	info, err := first.Inspect(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}

	// Calls are cancelled and children are killed at the same time, while the lock is passed
	// on.
	begin := time.Now()
	go func() {
		for i, cancel := range cancels {
			cancel()
			if i < len(dead) {
				dead[i].kill()
			}
		}
	}()
	holder.mustUnlock(t)
	for _, waiting := range cancelled {
		ends(t, "a cancelled wait", waiting.done)
		if waiting.err == nil { // it was granted just before it was cancelled
			waiting.held.mustUnlock(t)
		}
	}
	// A killed child may hold the lock until its TTL is over. All dead waiters together cost
	// one heartbeat.
	bound := ttl + first.Capabilities().Heartbeat + soon
	granted := make(chan *turn, len(patient))
	for _, waiting := range patient {
		go func() {
			<-waiting.done
			granted <- waiting
		}()
	}
	place := -1
	for range patient {
		select {
		case waiting := <-granted:
			next := waiting.get(limit)
			before := place
			place = slices.IndexFunc(info.Waiters, func(w holdfast.Waiter) bool { return w.Owner == next.hold.Who })
			if place < before && first.Capabilities().Features.Has(holdfast.FeatureQueue) {
				t.Errorf("order: %s, number %d in the queue, was served after number %d", next.hold.Who, place+1, before+1)
			}
			next.mustUnlock(t)
		case <-time.After(bound - time.Since(begin)):
			t.Fatalf("L: some still wait after %v", bound)
		}
	}
	check(t, h.Check())
	b.clean(bound, append(clients, first)...)
}
