package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A model is a simple server that fulfils the contract. On demand it breaks the contract in one
// named way. Wrapping a correct store would not be enough, because queues, expiry and wake-ups
// can only be broken from the inside.
//
// For every `bug(…)` there is a variant in variants_test.go, with the tests that must catch it.
type model struct {
	renewals  int
	fault     string // name of the active bug
	features  store.Features
	heartbeat time.Duration

	mu      sync.Mutex
	locks   map[string]*lock
	counter int64 // highest token
	refused int   // number of refusals, for a bug that is intermittent
	conns   int
	stray   []string // what a bug left behind
}

type lock struct {
	name    string
	holders []*holder
	queue   []*waiter
	invalid error // of the latest invalid request
}

type holder struct {
	store.Holder
	limit  int
	tokens int   // in the newest block
	via    *link // the connection that acquired
	since  time.Time
	until  time.Time
	first  int64 // token, of the first block
}

type waiter struct {
	req    store.Request
	joined time.Time
	asked  time.Time
	woken  chan struct{} // closed on a change since the last refusal
}

// A link is a connection to a model.
type link struct {
	*model
	done    chan struct{}
	stopped bool
	counter int64
	waits   atomic.Int32
	cut     bool
	late    map[store.ID]bool // cancelled calls that are undone too late
}

const allFeatures = store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep | store.FeatureList

func newModel(fault string, features store.Features, heartbeat time.Duration) *model {
	return &model{fault: fault, features: features, heartbeat: heartbeat, locks: map[string]*lock{}}
}

// bug reports whether that bug is active.
func (m *model) bug(name string) bool {
	if _, ok := byBug[name]; !ok {
		panic("no variant is called " + name)
	}
	return m.fault == name
}

func (m *model) open() store.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns++
	return &link{model: m, done: make(chan struct{}), counter: int64(m.conns) * 1000}
}

func (m *model) residue() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(slices.Sorted(maps.Keys(m.locks)), m.stray...)
}

func (c *link) Capabilities() store.Capabilities {
	caps := store.Capabilities{Store: "model", Features: c.features, MinTTL: time.Millisecond, Heartbeat: c.heartbeat, Instant: true}
	if c.bug("no heartbeat is declared") {
		caps.Heartbeat = 0
	}
	return caps
}

func (c *link) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.bug("calls after Close work") {
		c.stopped = true
	}
	if !c.bug("Close does not end a Wait") {
		close(c.done)
	}
	if c.bug("Close ends the grants and waiters of all") {
		clear(c.locks)
	}
	return nil
}

// enter starts a call for one name. It locks the model, and the caller unlocks it.
func (c *link) enter(ctx context.Context, name string) (*lock, error) {
	if c.bug("calls ignore their context") && ctx.Err() != nil {
		time.Sleep(time.Hour)
	}
	c.mu.Lock()
	if c.stopped && c.bug("Close is reported as a lost connection") {
		return nil, errors.New("model: connection lost")
	}
	if c.stopped {
		return nil, fmt.Errorf("model: %w", store.ErrClosed)
	}
	if c.cut {
		return nil, errors.New("model: connection lost")
	}
	if err := ctx.Err(); err != nil {
		c.cut = c.bug("a cancelled call spoils the connection")
		return nil, err
	}
	return c.find(c.key(name)), nil
}

// key returns the key under which a name is kept.
func (c *link) key(name string) string {
	switch {
	case c.bug("names are folded by case"):
		return strings.ToLower(name)
	case c.bug("names lose trailing spaces"):
		return strings.TrimRight(name, " ")
	case c.bug("names are normalised"):
		return strings.ReplaceAll(name, "e\u0301", "\u00e9")
	case c.bug("names are cleaned like paths"):
		return path.Clean(name)
	case c.bug("names are truncated"):
		return name[:min(len(name), 500)]
	}
	return name
}

// find returns the lock of a name, after it has removed expired holders and waiters.
func (m *model) find(name string) *lock {
	l := m.locks[name]
	if l == nil {
		l = &lock{name: name}
		m.locks[name] = l
	}
	now := time.Now()
	l.holders = slices.DeleteFunc(l.holders, func(h *holder) bool {
		over := !now.Before(h.until)
		switch {
		case m.bug("a TTL is forgotten") && h.State == store.Held:
			over = false
		case m.bug("a reader lives while others renew") && len(l.holders) > 1:
			over = !slices.ContainsFunc(l.holders, func(h *holder) bool { return now.Before(h.until) })
		case m.bug("a waiter does not see that the holder expired") && len(l.queue) > 0:
			over = false
		}
		if over && m.bug("tokens restart after an expiry") {
			m.counter = 0
		}
		return over
	})
	// drop reports whether a waiter has lost its place, and ends its Wait then, which no change might end otherwise.
	drop := func(w *waiter) bool {
		last := w.asked
		if m.bug("a live waiter is dropped") {
			last = w.joined
		}
		if m.bug("a dead waiter keeps its place") || now.Sub(last) <= m.heartbeat {
			return false
		}
		w.wake()
		return true
	}
	if m.bug("dead waiters add up") {
		for len(l.queue) > 0 && drop(l.queue[0]) {
			l.queue = l.queue[1:]
			for _, w := range l.queue[:min(1, len(l.queue))] {
				w.asked = now // its heartbeat counts from the time at which it became the first
			}
		}
		return l
	}
	l.queue = slices.DeleteFunc(l.queue, drop)
	return l
}

// leave ends a call for one name.
func (c *link) leave(l *lock) {
	if l != nil && len(l.holders) == 0 && len(l.queue) == 0 && !c.bug("free names are listed") {
		delete(c.locks, l.name)
		if c.bug("tokens restart after a release") {
			c.model.counter = 0
		}
	}
	c.mu.Unlock()
}

// wake wakes the waiters that can be granted now, in order.
func (c *link) wake(l *lock) {
	if c.bug("nobody is woken") {
		return
	}
	u := l.usage()
	for _, w := range l.queue {
		if !u.Admits(w.req.Mode, w.req.Weight, w.req.Limit) {
			return
		}
		w.wake()
		if c.bug("only the first waiter is woken") {
			return
		}
		u.Add(w.req.Mode, w.req.Weight, w.req.Limit)
	}
}

func (w *waiter) wake() {
	select {
	case <-w.woken:
	default:
		close(w.woken)
	}
}

func (l *lock) usage() *store.Usage {
	u := new(store.Usage)
	for _, h := range l.holders {
		u.Add(h.Mode, h.Weight, h.limit)
	}
	return u
}

func (l *lock) holder(id store.ID) *holder {
	for _, h := range l.holders {
		if h.ID == id {
			return h
		}
	}
	return nil
}

// holder returns the holder of that identity, or with that bug another one if there is none.
func (c *link) holder(l *lock, id store.ID, bug string) *holder {
	h := l.holder(id)
	if h == nil && c.bug(bug) && len(l.holders) > 0 {
		h = l.holders[0]
	}
	return h
}

func (l *lock) place(id store.ID) int {
	return slices.IndexFunc(l.queue, func(w *waiter) bool { return w.req.ID == id })
}

func (l *lock) remove(h *holder) {
	l.holders = slices.DeleteFunc(l.holders, func(other *holder) bool { return other == h })
}

// reserve returns the first of n new tokens.
func (c *link) reserve(n int, floor int64) int64 {
	counter := &c.model.counter
	if c.bug("tokens are counted per connection") {
		counter = &c.counter
	}
	if c.bug("a floor is ignored") {
		floor = 0
	}
	first := max(*counter, floor) + 1
	if c.bug("tokens are nanoseconds") {
		first = time.Now().UnixNano()
	}
	if c.bug("blocks overlap") {
		n = 1
	}
	*counter = first + int64(n) - 1
	return first
}
