package rediscore

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// linger is how long a subscription outlives its last waiter: on a busy name the next one
	// comes soon.
	linger = 10 * time.Second

	// Between two attempts to subscribe. Meanwhile waiters are served, only later: they ask
	// by themselves.
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

// waits are the queued identities of this handle and the subscriptions that wake them. A
// handle listens on a channel of its own, one for each slot that it waits in; a script that
// lets a waiter in publishes the waiter's identity there. So one process is told, and in it one
// waiter.
//
// A message is lost if nobody listens yet, or while the connection is down. Hence all waiters
// are woken whenever listening begins: they ask again, and hear whatever happens after that.
type waits struct {
	store  *Store
	handle string
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	all    map[wake.Key]*waitState
	groups map[int]*subscription
}

// A waitState is what is known of a queued identity. Calls of one client may use an identity
// one after the other, each with a TTL of its own.
type waitState struct {
	group   int
	request store.Request // the last one that was sent
	sent    time.Duration // when that was, since base
	listens bool          // it counts as one of the subscription's waiters
	wake    wake.Signal   // it should ask again
	grant   unasked       // what it was granted since, if sent is not 0
}

// An unasked grant comes with the wake-up of a waiter: see grant in state.lua.
type unasked struct {
	sent    time.Duration // of the request that it answers, since base
	ttl     time.Duration // from when it was granted, which was later
	token   int64
	tokens  int
	waiters int
}

type subscription struct {
	waiters int
	cancel  context.CancelFunc
	idle    *time.Timer // set while there are no waiters
	failed  bool        // since it last worked
	err     error       // why, until a waiter was told
}

func (w *waits) init(s *Store) {
	w.store, w.handle = s, rand.Text()
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.all, w.groups = make(map[wake.Key]*waitState), make(map[int]*subscription)
}

// queued reports whether an identity is queued.
func (w *waits) queued(name string, id store.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[wake.Key{Name: name, ID: id}] != nil
}

// granted answers a request by what it was granted unasked. A grant is taken only by the very
// request that the server granted it to: the lease lasts as long as the server says, counted
// from when that request was sent, and never longer than it asked for. In all other cases, and
// if most of its time is over, the server is asked again, which knows the identity and starts
// the TTL anew.
func (w *waits) granted(req *store.Request) (answer store.Answer, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := wake.Key{Name: req.Name, ID: req.ID}
	state := w.all[key]
	if state == nil || state.grant.sent == 0 {
		return answer, false
	}
	grant, asked := state.grant, &state.request
	state.grant = unasked{}
	most := w.store.unasked(asked)
	left := min(grant.ttl, most) - (sinceBase() - grant.sent)
	if grant.sent != state.sent || left <= most/2 || grant.token < 1 || grant.tokens < 1 || grant.tokens > asked.Tokens ||
		asked.Mode != req.Mode || asked.TTL != req.TTL || asked.Owner != req.Owner || asked.Meta != req.Meta {
		return answer, false
	}
	w.end(key, state)
	return store.Answer{Token: grant.token, Tokens: grant.tokens, TTL: left, Waiters: grant.waiters}, true
}

// expect notes that a request is about to be sent that may be queued: messages from now on are
// news to it. It returns the channel to publish to, and the time that grants count from.
func (w *waits) expect(group int, req *store.Request) (channel string, sent time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	channel, sent = w.store.keys.channel(group, w.handle), sinceBase()
	if w.ctx.Err() != nil {
		return channel, sent // closed: the call fails anyway
	}
	key := wake.Key{Name: req.Name, ID: req.ID}
	state := w.all[key]
	if state == nil {
		state = &waitState{group: group}
		w.all[key] = state
	}
	state.wake.Reset()
	state.request, state.sent = *req, sent
	return channel, sent
}

// listen subscribes for an identity that has to wait, and not before: a connection that
// somebody listens on is slower for all else, and most requests are granted at once.
func (w *waits) listen(name string, id store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.all[wake.Key{Name: name, ID: id}]
	if state == nil || state.listens || w.ctx.Err() != nil {
		return
	}
	state.listens = true
	sub := w.groups[state.group]
	if sub == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		sub = &subscription{cancel: cancel}
		w.groups[state.group] = sub
		w.wg.Go(func() { w.subscribe(ctx, state.group, sub) })
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
	key := wake.Key{Name: name, ID: id}
	if state := w.all[key]; state != nil {
		w.end(key, state)
	}
}

func (w *waits) end(key wake.Key, state *waitState) {
	state.wake.Send()
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

// subscribe keeps a subscription up until it is not needed any more.
func (w *waits) subscribe(ctx context.Context, group int, sub *subscription) {
	channel := w.store.keys.channel(group, w.handle)
	on := func() { w.changed(group, sub, nil) }
	for pause := leastPause; ctx.Err() == nil; pause = min(2*pause, mostPause) {
		begin := time.Now()
		err := w.store.conn.Subscribe(ctx, channel, w.store.config.Cluster, on, w.message)
		if time.Since(begin) > mostPause {
			pause = leastPause // it had worked
		}
		if err != nil && ctx.Err() == nil {
			w.changed(group, sub, w.store.explain(ctx, err))
		}
		sleep(ctx, pause)
	}
}

// changed notes that a subscription works, or why not, and wakes all waiters of its group: what
// they missed is not known. One of them is told of a failure, once until it works again; they
// all go on asking by themselves.
func (w *waits) changed(group int, sub *subscription, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && sub.failed {
		return
	}
	sub.failed, sub.err = err != nil, err
	for _, state := range w.all {
		if state.group == group {
			state.wake.Send()
		}
	}
}

// message reads what a script published: an identity, what it was granted if anything, and the
// key of its lock.
func (w *waits) message(text string) {
	f := fields{rest: text}
	id := f.id()
	var grant unasked
	if !strings.HasPrefix(f.rest, Prefix) {
		grant = unasked{
			sent: time.Duration(f.int()), ttl: f.millis(),
			token: f.int(), tokens: int(f.int()), waiters: int(f.int()),
		}
	}
	name, ok := w.store.keys.name(f.rest)
	if f.err != nil || !ok {
		return // not ours
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if state := w.all[wake.Key{Name: name, ID: id}]; state != nil {
		state.grant = grant
		state.wake.Send()
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
// returns nil at once if the identity was not queued through this handle. If the server
// refuses to let the store subscribe, one Wait returns that as an error.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if s.calls.Closing.Err() != nil {
		return s.errClosed()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &s.waits
	w.mu.Lock()
	state := w.all[wake.Key{Name: name, ID: id}]
	var woken <-chan struct{}
	if state != nil {
		woken = state.wake.C()
	}
	w.mu.Unlock()
	switch err := wake.Wait(ctx, woken, w.ctx.Done(), store.ErrClosed); err {
	case nil:
	case store.ErrClosed:
		return s.errClosed()
	default:
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure(state)
}

// failure is why a waiter's subscription does not work, if nobody was told yet.
func (w *waits) failure(state *waitState) error {
	if state == nil || w.groups[state.group] == nil {
		return nil
	}
	sub := w.groups[state.group]
	err := sub.err
	sub.err = nil
	return err
}
