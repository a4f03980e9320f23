package rediscore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	linger = 10 * time.Second // how long a subscription outlives its last waiter

	// Bounds of the pause between two attempts to subscribe. Waiters poll meanwhile, which is slower.
	minPause, maxPause = 50 * time.Millisecond, 2 * time.Second
)

// waits holds the queued identities of this handle and the subscriptions that wake them. A handle listens on
// a channel of its own in each group of names that it waits for. There, scripts publish the identity of the
// one waiter that was granted the name or should ask again.
//
// A message is lost while no subscription is up. So all waiters of a group are woken whenever its
// subscription starts: they ask again, and are woken by every later change.
type waits struct {
	store  *Store
	handle string // the name of its channels
	wg     sync.WaitGroup

	mu     sync.Mutex
	all    map[wake.Key]*waiting
	groups map[string]*subscription
}

// A waiting is a queued identity. Calls of one client may use it one after the other, each with its own TTL.
type waiting struct {
	group   string
	request store.Request // the last one that was sent
	sent    time.Duration // when it was sent, since base
	sub     *subscription // set once it was refused
	wake    wake.Signal   // it should ask again
	grant   string        // the grant that was pushed since then: see grant in state.lua
}

type subscription struct {
	waiters int
	cancel  context.CancelFunc
	idle    *time.Timer // running while there are no waiters; nil before
	failed  bool        // since it last worked
	err     error       // why it failed; nil after a waiter got this error
}

// maxPushed returns for how long a grant may be pushed to a waiting request: no longer than the waiter counts
// as alive, and 0, which means never, if the request is not a plain exclusive one, or if replicas must
// confirm grants, because they confirm only grants that a client requested itself.
func (s *Store) maxPushed(req *store.Request) time.Duration {
	if req.Mode != store.Exclusive || req.Floor > 0 || s.config.Replicas > 0 {
		return 0
	}
	return min(req.TTL, s.config.Heartbeat).Truncate(time.Millisecond)
}

// pushed answers a request with the grant that was pushed to it, if there is one, and reports whether the
// identity is queued. The grant lasts as long as the server says, counted from the send time of the request
// that it granted. If another request asks, or if most of that time is over, the server is asked again and
// restarts the TTL.
func (w *waits) pushed(req *store.Request) (answer store.Answer, queued bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := wake.Key{Name: req.Name, ID: req.ID}
	one := w.all[key]
	if one == nil || one.grant == "" {
		return answer, one != nil
	}
	f, asked := fields{rest: one.grant}, &one.request
	one.grant = ""
	most := w.store.maxPushed(asked)
	sent := time.Duration(f.int())
	answer = store.Answer{TTL: min(f.millis(), most) - (sinceBase() - sent), Token: f.int(), Tokens: int(f.int()), Waiters: int(f.int())}
	if f.err != nil || sent != one.sent || answer.TTL <= most/2 || answer.Token < 1 || answer.Tokens < 1 || answer.Tokens > asked.Tokens ||
		asked.Mode != req.Mode || asked.TTL != req.TTL || asked.Owner != req.Owner || asked.Meta != req.Meta {
		return store.Answer{}, true
	}
	w.end(key, one)
	return answer, false
}

// expect records that a request which may be queued is about to be sent. It returns the channel to publish to,
// and the time from which a pushed grant counts.
func (w *waits) expect(req *store.Request) (channel string, sent time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	group, sent := w.store.group(req.Name), sinceBase()
	key := wake.Key{Name: req.Name, ID: req.ID}
	one := w.all[key]
	if one == nil {
		one = &waiting{group: group}
		w.all[key] = one
	}
	one.wake.Reset()
	one.request, one.sent = *req, sent
	return w.channel(group), sent
}

func (w *waits) channel(group string) string { return group + "wake:" + w.handle }

// listen subscribes for an identity after it was refused, and not earlier, because most requests are granted
// at once, and a connection with a subscription is slower for all other calls.
func (w *waits) listen(name string, id store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[wake.Key{Name: name, ID: id}]
	if one == nil || one.sub != nil || w.store.calls.Work.Err() != nil {
		return
	}
	sub := w.groups[one.group]
	if sub == nil {
		ctx, cancel := context.WithCancel(w.store.calls.Work)
		sub = &subscription{cancel: cancel}
		w.groups[one.group] = sub
		w.wg.Go(func() { w.subscribe(ctx, one.group, sub) })
	}
	one.sub = sub
	sub.waiters++
	if sub.idle != nil {
		sub.idle.Stop()
	}
}

// forget ends the wait of an identity that is no longer queued.
func (w *waits) forget(name string, id store.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := wake.Key{Name: name, ID: id}
	if one := w.all[key]; one != nil {
		w.end(key, one)
	}
}

// end removes an identity. The caller holds the mutex.
func (w *waits) end(key wake.Key, one *waiting) {
	one.wake.Send()
	delete(w.all, key)
	sub := one.sub
	if sub == nil {
		return
	}
	if sub.waiters--; sub.waiters == 0 {
		sub.idle = time.AfterFunc(linger, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if sub.waiters == 0 && w.groups[one.group] == sub {
				delete(w.groups, one.group)
				sub.cancel()
			}
		})
	}
}

// subscribe keeps a subscription up until it is no longer needed.
func (w *waits) subscribe(ctx context.Context, group string, sub *subscription) {
	on := func() { w.changed(group, sub, nil) }
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		begin := time.Now()
		err := w.store.conn.Subscribe(ctx, w.channel(group), on, w.message)
		if time.Since(begin) > maxPause {
			pause = minPause // it had worked
		}
		if err != nil && ctx.Err() == nil {
			w.changed(group, sub, w.store.explain(ctx, err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// changed records that a subscription works, or why it does not, and wakes all waiters of its group, because
// they may have missed messages. One of them gets the error, once until the subscription works again.
func (w *waits) changed(group string, sub *subscription, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && sub.failed {
		return
	}
	sub.failed, sub.err = err != nil, err
	for _, one := range w.all {
		if one.group == group {
			one.wake.Send()
		}
	}
}

// message parses a message of a script: an identity, the server's time in ms, perhaps a grant, and the key of
// the lock.
func (w *waits) message(text string) {
	f := fields{rest: text}
	id, now := f.id(), f.millis()
	end := strings.LastIndexByte(f.rest, '\t') + 1
	name, ok := w.store.nameOf(f.rest[end:])
	if f.err != nil || !ok {
		return // not a message of Holdfast
	}
	w.store.observe(now, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.all[wake.Key{Name: name, ID: id}]; one != nil {
		one.grant = f.rest[:end]
		one.wake.Send()
	}
}

// Wait blocks until a queued identity should ask again: see store.Store. It returns nil at once if the
// identity was not queued through this handle. If the subscription fails, one Wait returns the error.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.calls.Usable(ctx); err != nil {
		return err
	}
	w := &s.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[wake.Key{Name: name, ID: id}]
	if one == nil {
		return nil
	}
	woken := one.wake.C()
	w.mu.Unlock()
	err := wake.Wait(ctx, woken, s.calls.Closing.Done(), s.calls.ErrClosed)
	w.mu.Lock()
	if err == nil && one.sub != nil {
		err, one.sub.err = one.sub.err, nil
	}
	return err
}
