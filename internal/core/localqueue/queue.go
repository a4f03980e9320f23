package localqueue

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A Queue is the local queue of one client.
type Queue struct {
	config Config
	seed   maphash.Seed
	shards [64]shard

	// A contended name needs a waiter for every lock. The pool is not global because each test of a
	// program may run in a synctest bubble of its own, and a channel must not leave its bubble.
	waiters sync.Pool
}

// Config holds the settings and functions that a queue needs from its client.
type Config struct {
	Renewals *renewal.Scheduler
	Now      func() time.Duration
	Limit    int           // maximum number of consecutive hand-overs; 0 turns them off
	Slice    time.Duration // how long hand-overs may continue while another process waits
	Ordered  bool          // the store has a queue, so it can tell whether another process waits
	Owner    string        // of the client, as shown to calls that the client itself keeps out
}

// Init sets up a queue.
func (q *Queue) Init(config Config) {
	q.config = config
	q.seed = maphash.MakeSeed()
	q.waiters.New = func() any { return &Waiter{ready: make(chan struct{}, 1)} }
	for i := range q.shards {
		q.shards[i].names = make(map[string]*name)
	}
}

// A Call is the part of an acquiring call that the queue needs to know.
type Call struct {
	Request  store.Request
	Begin    time.Duration // when it began
	Patience time.Duration // how long it waits while the store does not reply; 0 for no limit
	Try      bool          // it does not wait for a holder
	Once     bool          // it ends as soon as the work of the name is known to be done
	Own      bool          // it needs its own grant, so there is no hand-over
}

// A Waiter is a call in the queue. It is in the list of its name until it is signalled.
type Waiter struct {
	prev, next *Waiter
	queued     bool
	name       *name
	call       Call
	ready      chan struct{} // capacity 1
	outcome    Outcome
}

// Ready returns the channel on which the waiter is signalled. Exactly one call of Collect or
// Cancel must follow: Collect after the signal, Cancel at any time.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// An Outcome is what the queue gives a call: a grant, an answer that ends it, or the turn.
type Outcome struct {
	Grant  *renewal.Grant
	Token  int64         // of this hand-over of the grant
	Since  time.Duration // time of the hand-over
	Answer *Answer
	Turn   Turn
}

// Join adds a call to the queue, and returns a waiter. If no other call of this client is in front,
// or if the answer is known, it returns the turn or the answer instead.
func (q *Queue) Join(call *Call) (Outcome, *Waiter) {
	sh := q.shard(call.Request.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.get(call.Request.Name)
	if n.grant == nil && !n.busy { // then no call waits either
		n.busy = true
		return Outcome{Turn: Turn{q, n}}, nil
	}
	if call.Try || call.Once {
		if a := n.answer(&q.config, call); a != nil {
			return Outcome{Answer: a}, nil
		}
	}
	w := q.waiters.Get().(*Waiter)
	w.name, w.call = n, *call
	n.push(w)
	return Outcome{}, w
}

// Collect returns the outcome of a waiter that was signalled.
func (q *Queue) Collect(w *Waiter) Outcome {
	out := w.outcome
	if out.Grant == nil && out.Answer == nil {
		out.Turn = Turn{q, w.name}
	}
	*w = Waiter{ready: w.ready}
	q.waiters.Put(w)
	return out
}

// Cancel removes a waiter from the queue. If it was signalled at the same moment, the caller must
// release the grant or end the turn in out. Obstacle says why the waiter had to wait, if known.
func (q *Queue) Cancel(w *Waiter) (out Outcome, signalled bool, obstacle *Answer) {
	n := w.name
	n.shard.mu.Lock()
	obstacle = n.obstacle(&q.config)
	signalled = !w.queued
	if !signalled {
		n.remove(w)
	}
	n.shard.mu.Unlock()
	if signalled {
		<-w.ready
	}
	return q.Collect(w), signalled, obstacle
}

// ForgetRefusal forgets what the last refusal of the store says about a grant or a record that this client
// may have ended. A refusal that is on its way ends only the call that asked.
func (q *Queue) ForgetRefusal(name string) {
	sh := q.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if n := sh.names[name]; n != nil {
		n.outdated.Store(true)
		n.answered = n.answered.outdated()
	}
}
