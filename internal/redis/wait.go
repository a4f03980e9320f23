package redis

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// linger is how long a subscription outlives the last who waited: on a busy name the
	// next comes soon.
	linger = 10 * time.Second

	// Between two attempts to subscribe. Meanwhile waiters are served, only later: they ask
	// by themselves.
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second

	// For how long a name is taken for crowded, and how many are.
	crowdTime  = time.Second
	maxCrowded = 10_000
)

// waits are the identities of this handle that are queued, and the subscriptions through
// which they are woken. A handle listens on a channel of its own, one for each slot that it
// waits in: whoever lets a waiter in publishes the waiter's identity there. So one process
// is told, and in it one waiter.
//
// A message gets lost if nobody listens yet, or while the connection is lost. Hence all are
// woken whenever listening begins: they ask again, and whatever happens after that is heard.
type waits struct {
	store  *Store
	handle string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	all     map[waitKey]*waitState
	groups  map[int]*subscription
	crowded map[string]time.Duration // until when it is taken for that
}

type waitKey struct {
	name string
	id   store.ID
}

type waitState struct {
	group       int
	owner, meta string        // of the last request
	listens     bool          // it counts as one of the subscription's waiters
	woken       bool          // it is worth asking again
	grant       unasked       // what it was granted meanwhile, if sent is not 0
	wakes       chan struct{} // made by Wait, closed by wake
}

// An unasked grant comes with the wake-up of who waits for a name alone: see state.lua.
type unasked struct {
	sent    time.Duration // when it asked last before, since base: it was granted after that
	token   int64
	waiters int
}

type subscription struct {
	waiters int
	cancel  context.CancelFunc
	idle    *time.Timer // set while there are no waiters
}

func (w *waits) init(s *Store) {
	w.store, w.handle = s, rand.Text()
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.all, w.groups, w.crowded = make(map[waitKey]*waitState), make(map[int]*subscription), make(map[string]time.Duration)
}

// look reports whether an identity is queued, and whether others were in the way of its name
// a short time ago: then it is of no use to try the plain way.
func (w *waits) look(name string, id store.ID) (queued, crowded bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.crowded) > 0 {
		until, ok := w.crowded[name]
		crowded = ok && sinceBase() < until
	}
	return w.all[waitKey{name, id}] != nil, crowded
}

// crowd notes whether others are in the way of a name.
func (w *waits) crowd(name string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(name, yes)
}

func (w *waits) note(name string, yes bool) {
	if !yes {
		delete(w.crowded, name)
		return
	}
	if len(w.crowded) >= maxCrowded {
		clear(w.crowded)
	}
	w.crowded[name] = sinceBase() + crowdTime
}

// granted answers a request by what it was granted unasked. That is too little if most of
// its time is over: asking starts it anew.
func (w *waits) granted(req *store.Request) (answer store.Answer, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := waitKey{req.Name, req.ID}
	state := w.all[key]
	if state == nil || state.grant.sent == 0 {
		return answer, false
	}
	grant := state.grant
	state.grant = unasked{}
	whole := w.store.unasked(req)
	left := whole - (sinceBase() - grant.sent)
	if left < whole/2 || left <= 0 || state.owner != req.Owner || state.meta != req.Meta {
		return answer, false
	}
	w.end(key, state)
	w.note(req.Name, grant.waiters > 0)
	return store.Answer{Token: grant.token, Tokens: 1, TTL: left, Waiters: grant.waiters}, true
}

// expect notes that a request is about to be queued: what comes from now on is news to it.
// It returns the channel to publish to.
func (w *waits) expect(group int, req *store.Request) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	channel := w.store.keys.channel(group, w.handle)
	if w.ctx.Err() != nil {
		return channel // closed: the call fails anyway
	}
	key := waitKey{req.Name, req.ID}
	state := w.all[key]
	if state == nil {
		state = &waitState{group: group}
		w.all[key] = state
	}
	state.woken, state.owner, state.meta = false, req.Owner, req.Meta
	return channel
}

// queued listens for an identity that has to wait, and not before: a connection that
// somebody listens on is slower for all else, and most requests are granted at once.
func (w *waits) queued(name string, id store.ID, channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.all[waitKey{name, id}]
	if state == nil || state.listens || w.ctx.Err() != nil {
		return
	}
	state.listens = true
	sub := w.groups[state.group]
	if sub == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		sub = &subscription{cancel: cancel}
		w.groups[state.group] = sub
		w.wg.Add(1)
		go w.listen(ctx, state.group, channel)
	}
	sub.waiters++
	if sub.idle != nil {
		sub.idle.Stop()
		sub.idle = nil
	}
}

// forget ends the wait of an identity that is not queued any more.
func (w *waits) forget(name string, id store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := waitKey{name, id}
	if state := w.all[key]; state != nil {
		w.end(key, state)
	}
}

func (w *waits) end(key waitKey, state *waitState) {
	state.wake()
	delete(w.all, key)
	sub := w.groups[state.group]
	if sub == nil || !state.listens {
		return // closed, or never had to wait
	}
	if sub.waiters--; sub.waiters == 0 {
		sub.idle = time.AfterFunc(linger, func() { w.unsubscribe(state.group, sub) })
	}
}

// unsubscribe ends a subscription that nobody needs.
func (w *waits) unsubscribe(group int, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sub.waiters == 0 && w.groups[group] == sub {
		delete(w.groups, group)
		sub.cancel()
	}
}

// listen keeps a subscription up until it is not needed any more.
func (w *waits) listen(ctx context.Context, group int, channel string) {
	defer w.wg.Done()
	for pause := leastPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		begin := time.Now()
		w.store.conn.Subscribe(ctx, channel, w.store.config.Cluster, func() { w.wakeGroup(group) }, w.message)
		if time.Since(begin) > mostPause {
			pause = leastPause // it had worked
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// message reads what a script published: an identity, what it is granted if anything, and
// the key of its lock.
func (w *waits) message(text string) {
	f := fields{rest: text}
	id := f.id("")
	var grant unasked
	if !strings.HasPrefix(f.rest, Prefix) {
		grant = unasked{sent: time.Duration(f.int()), token: f.int(), waiters: int(f.int())}
	}
	name, ok := w.store.keys.name(f.rest)
	if f.err != nil || !ok {
		return // not ours
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if state := w.all[waitKey{name, id}]; state != nil {
		state.grant = grant
		state.wake()
	}
}

// wakeGroup wakes all who wait in a group: what they missed is not known.
func (w *waits) wakeGroup(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, state := range w.all {
		if state.group == group {
			state.wake()
		}
	}
}

func (s *waitState) wake() {
	s.woken = true
	if s.wakes != nil {
		close(s.wakes)
		s.wakes = nil
	}
}

func (w *waits) close() {
	w.mu.Lock()
	for _, sub := range w.groups {
		if sub.idle != nil {
			sub.idle.Stop()
		}
	}
	clear(w.groups)
	w.cancel()
	w.mu.Unlock()
	w.wg.Wait()
}

// Wait blocks until it is worth asking again for a queued identity: see store.Store. It
// returns nil at once if the identity was not queued through this handle.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	w := &s.waits
	w.mu.Lock()
	state := w.all[waitKey{name, id}]
	if state == nil || state.woken {
		w.mu.Unlock()
		return nil
	}
	if state.wakes == nil {
		state.wakes = make(chan struct{})
	}
	wakes := state.wakes
	w.mu.Unlock()
	select {
	case <-wakes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ctx.Done():
		return s.errClosed()
	}
}
