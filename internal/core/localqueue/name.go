package localqueue

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A shard has some of the names that a client holds exclusively, asks for or releases. Names
// are spread over shards so that calls for different names rarely contend for one mutex.
type shard struct {
	mu    sync.Mutex
	names map[string]*name
	spare *name // the last name that ended, still in the map, because a name is often used again
}

func (q *Queue) shard(name string) *shard {
	return &q.shards[maphash.String(q.seed, name)%uint64(len(q.shards))]
}

// A name is the state of one name while it has a grant, a turn or waiters. Its shard guards it.
type name struct {
	shard    *shard
	text     string
	busy     bool        // a goroutine has the turn
	answered Answer      // the last answer of the store to the call that has the turn
	timer    *time.Timer // of answerWaiters; may be nil

	grant    *renewal.Grant // held exclusively by this client; nil if there is none
	handover                // of the grant

	// The request whose place in the store's queue a call has left to the next call; may be nil.
	ticket *store.Request

	head, tail *Waiter
	waiting    atomic.Int32 // number of waiters; may be read without the mutex
	joined     atomic.Int32 // number of calls that began to wait so far; may be read without the mutex
	outdated   atomic.Bool  // a refusal of the last request may be due to what this client has ended since
}

func (sh *shard) get(text string) *name {
	if n := sh.names[text]; n != nil {
		if n == sh.spare {
			sh.spare = nil
		}
		return n
	}
	n := &name{shard: sh, text: text}
	sh.names[text] = n
	return n
}

// wakeNext gives the turn to the first waiter. If there is none, the name becomes the spare of its
// shard, and the previous spare is removed. The name must have neither a grant nor a turn.
func (n *name) wakeNext() {
	if w := n.head; w != nil {
		n.busy = true
		n.signal(w, Outcome{}) // Collect adds the turn
		return
	}
	if old := n.shard.spare; old != nil {
		delete(n.shard.names, old.text)
	}
	n.answered = Answer{}
	n.shard.spare = n
}

// An Answer is the last answer of the store about a name: a refusal or a failure. Calls that do
// not wait get it while another call has the turn.
type Answer struct {
	At      time.Duration
	Refusal *store.Refusal
	Lasting bool // the refusal stays true until the call that has the turn asks again
	First   bool // no later request can be granted before that call, or beside it
	Failure error
	Since   time.Duration // send time of the first call that failed since the last reply
}

// fresh reports whether the answer is recent enough for other calls. Later calls wait for the
// turn and ask the store themselves, because the call that has the turn may wait for a long time.
func (a *Answer) fresh(now time.Duration) bool { return a.Lasting || now-a.At <= answerAge }

// answerAge is how long an answer of the store is fresh.
const answerAge = 500 * time.Millisecond

// Done reports whether the name is closed because its work is done.
func (a *Answer) Done(now time.Duration) bool {
	if a.Refusal == nil || len(a.Refusal.Holders) == 0 {
		return false
	}
	first := &a.Refusal.Holders[0]
	return first.State == store.Done && (now == a.At || first.Left > now-a.At)
}

// outdated returns what is left of an answer when this client has ended a grant or a record: a refusal
// holds only if it is due to the request that is first in the queue, and then without its holders.
func (a Answer) outdated() Answer {
	switch {
	case a.Refusal == nil:
		return a
	case !a.First || a.Done(a.At):
		return Answer{}
	}
	refusal := *a.Refusal // a copy, because other calls may have the answer
	refusal.Holders, a.Refusal = nil, &refusal
	return a
}

// obstacle returns why a call must wait, or nil if only the store knows.
func (n *name) obstacle(c *Config) *Answer {
	now, answered := c.Now(), n.answered
	switch {
	case n.grant != nil:
		return &Answer{At: now, Refusal: &store.Refusal{Holders: []store.Holder{{
			ID:     n.grant.ID,
			Owner:  c.Owner,
			Meta:   n.grant.Meta,
			Mode:   store.Exclusive,
			Weight: 1,
			Token:  n.token,
			Age:    now - n.since,
			Left:   max(0, n.grant.Deadline()-now),
		}}}}
	case answered.Refusal != nil || answered.Failure != nil:
		return &answered
	}
	return nil
}

// answer returns the answer to a call if it is known already, or nil if the call has to wait.
func (n *name) answer(c *Config, call *Call) *Answer {
	now := c.Now()
	switch {
	case now >= n.patienceEnd(call):
		return n.obstacle(c)
	case n.grant == nil && !n.answered.fresh(now):
	case call.Try, call.Once && n.grant == nil && n.answered.Done(now):
		return n.obstacle(c)
	}
	return nil
}

const forever = time.Duration(math.MaxInt64)

// patienceEnd returns when a call gives up unless the store replies to the call that has the turn.
func (n *name) patienceEnd(call *Call) time.Duration {
	if n.answered.Failure == nil || call.Patience == 0 {
		return forever
	}
	return max(n.answered.Since, call.Begin) + call.Patience
}

// answerWaiters ends the waiting calls for which answer returns one, now and, in an outage, when the
// patience of the next call ends.
func (n *name) answerWaiters(c *Config) {
	next := forever
	n.each(func(w *Waiter) {
		if a := n.answer(c, &w.call); a != nil {
			n.signal(w, Outcome{Answer: a})
		} else {
			next = min(next, n.patienceEnd(&w.call))
		}
	})
	if n.timer != nil {
		n.timer.Stop()
	}
	if next < forever {
		n.timer = time.AfterFunc(next-c.Now(), func() {
			n.shard.mu.Lock()
			defer n.shard.mu.Unlock()
			n.answerWaiters(c)
		})
	}
}

// each calls fn for every waiter in order; fn may remove it.
func (n *name) each(fn func(*Waiter)) {
	for w := n.head; w != nil; {
		next := w.next
		fn(w)
		w = next
	}
}

// signal removes a waiter from the queue and tells it what it got.
func (n *name) signal(w *Waiter, out Outcome) {
	n.remove(w)
	w.outcome = out
	w.ready <- struct{}{} // never blocks: a waiter is signalled once
}

func (n *name) push(w *Waiter) {
	w.queued = true
	n.waiting.Add(1)
	n.joined.Add(1)
	w.prev = n.tail
	if n.tail != nil {
		n.tail.next = w
	} else {
		n.head = w
	}
	n.tail = w
}

func (n *name) remove(w *Waiter) {
	n.waiting.Add(-1)
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		n.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		n.tail = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
}
