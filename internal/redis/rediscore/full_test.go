package rediscore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// Calls that extend or release a lock must not need memory.
func TestAFullServerRenewsAndReleases(t *testing.T) {
	q := newQueue(t)
	s, waiting := q.wait()
	leaver, leaves := q.wait()
	shared := q.request()
	shared.Name, shared.Mode, shared.Queue = "shared", store.Shared, false
	readers := []store.Request{shared, shared}
	for i := range readers {
		readers[i].ID = store.NewID()
		suites.Granted(t, q.owner, readers[i])
	}
	before, behind := q.request(), q.request()
	before.Name, behind.Name, behind.Mode = "queue", "queue", store.Shared // no grant is pushed to it
	suites.Granted(t, q.owner, before)
	suites.Refused(t, s, behind)
	repeated := plain("repeated")
	suites.Granted(t, q.owner, repeated)
	q.server.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	q.server.Must("CONFIG", "SET", "maxmemory", "1mb")
	suites.Granted(t, q.owner, repeated)
	suites.Release(t, q.owner, repeated)
	if _, err := q.owner.Acquire(q.ctx, plain("new")); err == nil || !strings.Contains(err.Error(), "raise maxmemory") {
		t.Fatalf("error %v, want that a new lock is refused", err)
	}
	q.refused(s, waiting)
	if _, err := q.owner.Acquire(q.ctx, q.request()); err == nil || !strings.Contains(err.Error(), "raise maxmemory") {
		t.Fatalf("error %v, want that a new waiter is refused", err)
	}
	suites.Refused(t, s, behind)
	suites.Release(t, q.owner, before)
	suites.Granted(t, s, behind)
	suites.Release(t, s, behind)
	suites.Extended(t, q.owner, q.holder)
	suites.Extended(t, q.owner, readers[0])
	must(t, leaver.Leave(q.ctx, leaves.Name, leaves.ID))
	q.release()
	q.woken(s, waiting)
	suites.Granted(t, s, waiting)
	waiting.TTL *= 2 // so that the request goes to the server
	if answer := q.ask(s, waiting); !answer.Granted() || answer.TTL != waiting.TTL {
		t.Fatalf("%+v", answer)
	}
	suites.Extended(t, s, waiting)
	must(t, s.Release(q.ctx, waiting.Name, waiting.ID, store.Keep{State: store.Cooling, For: time.Minute}))
	must(t, s.Break(q.ctx, waiting.Name, waiting.ID))
	for _, req := range readers {
		suites.Release(t, q.owner, req)
	}
	if left := q.server.Must("KEYS", "*").([]any); len(left) != 1 {
		t.Errorf("keys left: %v, want the counter only", left)
	}
}

// A script ends at the first command that it has no right to run. The state that it wrote before
// must be complete.
func TestAServerThatForbidsToPublishKeepsTheQueue(t *testing.T) {
	q := newQueue(t)
	q.holder.Mode = store.Shared
	suites.Extended(t, q.owner, q.holder)
	first, next := q.request(), q.request()
	q.refused(q.owner, first)
	q.refused(q.owner, next)
	q.server.Must("ACL", "SETUSER", "default", "-publish")
	if err := q.owner.Release(q.ctx, q.holder.Name, q.holder.ID, store.Keep{}); err == nil || !strings.Contains(err.Error(), "no right") {
		t.Fatalf("release: %v, want that a right is missing", err)
	}
	q.server.Must("ACL", "SETUSER", "default", "+publish")
	if err := q.owner.Release(q.ctx, q.holder.Name, q.holder.ID, store.Keep{}); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("second release: %v, want that the first one ended the grant", err)
	}
	q.refused(q.owner, next)
	suites.Granted(t, q.owner, first)
}
