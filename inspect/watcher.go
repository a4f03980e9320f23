package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	maxNames   = 10_000           // of a listing
	maxParts   = 20               // prefixes that are listed between two listings of all names
	listLimit  = 10 * time.Second // of a listing
	idleAfter  = 10 * time.Second // when to stop listing the store after the last request
	checkEvery = time.Minute
	maxSamples = 120 // round trips that are kept
	probeName  = "holdfast:inspector"

	renewalStep = 500 * time.Millisecond // more than a listing is late, and less than a renewal adds
)

// A snapshot is the outcome of one listing. If that has failed, it has the locks of the last success.
type snapshot struct {
	at time.Time // of the listing of the locks
	listing
	trips trips
	seen  map[holdfast.ID]sighting // of holders

	counts map[string][]int // of history

	findings []store.Finding // of the last checks

	parts chan map[string]listing // by prefix, if the listing of all names is cut; taken out while it is used
}

// A listing is what a store has listed under a prefix.
type listing struct {
	locks []holdfast.Info // by name
	cut   bool            // there are more names, or there was no time to read them
	err   error
}

func (l listing) under(prefix string) listing {
	from, _ := slices.BinarySearchFunc(l.locks, prefix, byName)
	to := from
	for to < len(l.locks) && strings.HasPrefix(l.locks[to].Name, prefix) {
		to++
	}
	l.locks = l.locks[from:to]
	return l
}

func byName(l holdfast.Info, name string) int { return cmp.Compare(l.Name, name) }

// A sighting is what several listings have shown about a holder.
type sighting struct {
	full    time.Duration // the longest remaining time, which is about the TTL
	left    time.Duration // in the newest listing
	renewed time.Time     // time of the first listing after its last renewal; zero if none was seen
	waited  time.Duration // how long it waited for the lock; 0 if no wait was seen
}

// sightings updates those of the previous listing, which is nil for the first one.
func (s *snapshot) sightings(before *snapshot) {
	s.seen = make(map[holdfast.ID]sighting)
	if before == nil {
		before = new(snapshot)
	}
	for _, lock := range s.locks {
		for _, h := range lock.Holders {
			now := sighting{full: h.Left, left: h.Left}
			if old, ok := before.seen[h.ID]; ok {
				now.full, now.renewed, now.waited = max(h.Left, old.full), old.renewed, old.waited
				if expected := old.left - s.at.Sub(before.at); h.Left > expected+renewalStep {
					now.renewed = s.at
				}
			}
			s.seen[h.ID] = now
		}
	}
}

func (s *snapshot) find(name string) (holdfast.Info, bool) {
	if i, ok := slices.BinarySearchFunc(s.locks, name, byName); ok {
		return s.locks[i], true
	}
	return holdfast.Info{Name: name}, false
}

// trips are times of round trips to the store.
type trips struct{ P50, P99, Last time.Duration }

// A watcher lists the store while a page is open. All browsers share it.
type watcher struct {
	client   *holdfast.Client
	interval time.Duration

	mu      sync.Mutex
	now     *snapshot
	last    *snapshot     // the last one that succeeded
	next    chan struct{} // closed by the next snapshot
	looked  time.Time     // time of the last call of look
	running bool
	partly  time.Duration // how long listings of prefixes took since the last listing of all names
	samples []time.Duration
	history history

	check    func(context.Context) []store.Finding // nil without checks
	checked  time.Time                             // when the last checks began
	findings []store.Finding
}

// look returns the newest snapshot, or nil if there is none or it is outdated, and a channel that is
// closed when the next one is ready.
func (w *watcher) look() (*snapshot, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = time.Now()
	if !w.running {
		w.running = true
		if w.now != nil && time.Since(w.now.at) > 2*w.interval {
			w.now, w.last = nil, nil // no page was requested for a while
		}
		go w.run()
	}
	return w.now, w.next
}

// fresh returns the newest snapshot. If there is none yet, it waits for the first listing.
func (w *watcher) fresh(ctx context.Context) (*snapshot, error) {
	for {
		s, next := w.look()
		if s != nil {
			return s, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *watcher) run() {
	for {
		s, took := w.list()
		w.mu.Lock()
		if s.err == nil {
			s.sightings(w.last)
			if w.now == nil || w.now.err == nil {
				w.history.note(w.last, s)
			}
			w.history.count(s, w.last == nil)
			s.counts = maps.Clone(w.history.counts)
			w.last = s
		} else if w.last != nil {
			s.at, s.locks, s.cut, s.seen, s.counts = w.last.at, w.last.locks, w.last.cut, w.last.seen, w.last.counts
		}
		if w.check != nil && time.Since(w.checked) >= checkEvery {
			w.checked = time.Now()
			go w.runChecks()
		}
		s.findings = w.findings
		w.now = s
		close(w.next)
		w.next = make(chan struct{})
		shown := time.Now()
		w.mu.Unlock()
		time.Sleep(max(w.interval, 9*took))
		for took = w.tookPartly(); took > 0; took = w.tookPartly() {
			time.Sleep(9 * took)
		}
		if w.idle(shown) {
			return
		}
	}
}

func (w *watcher) runChecks() {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	findings := w.check(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = findings
}

// idle reports whether no page was requested since the last snapshot was shown, nor shortly before.
func (w *watcher) idle(shown time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !w.looked.Before(shown) || time.Since(w.looked) <= idleAfter
	return !w.running
}

// list lists the store once, and returns how long the store took. It returns 0 if the store does
// not answer, so that the page soon shows when the store answers again.
func (w *watcher) list() (s *snapshot, took time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	s = &snapshot{at: time.Now(), parts: make(chan map[string]listing, 1)}
	s.parts <- make(map[string]listing)
	_, s.err = w.client.Inspect(ctx, probeName)
	s.trips = w.sample(time.Since(s.at), s.err)
	if s.err != nil {
		return s, 0
	}
	s.listing = w.listUnder(ctx, "")
	return s, time.Since(s.at)
}

func (w *watcher) listUnder(ctx context.Context, prefix string) (l listing) {
	for lock, err := range w.client.List(ctx, prefix) {
		if l.cut = len(l.locks) == maxNames || ctx.Err() != nil && len(l.locks) > 0; l.cut {
			break
		}
		if err != nil {
			l.err = err
			break
		}
		l.locks = append(l.locks, lock)
	}
	slices.SortStableFunc(l.locks, func(a, b holdfast.Info) int { return byName(a, b.Name) })
	// A name that changed between two pages of the listing may be on both.
	l.locks = slices.CompactFunc(l.locks, func(a, b holdfast.Info) bool { return a.Name == b.Name })
	return l
}

// under returns the locks whose names start with a prefix. If the listing of all names has ended
// early, it lists the prefix, once for each snapshot.
func (w *watcher) under(ctx context.Context, s *snapshot, prefix string) listing {
	if prefix == "" || !s.cut || s.err != nil {
		return s.listing.under(prefix)
	}
	parts := <-s.parts // concurrent requests wait for the listing and share it
	defer func() { s.parts <- parts }()
	if part, ok := parts[prefix]; ok {
		return part
	}
	if len(parts) >= maxParts || ctx.Err() != nil {
		return s.listing.under(prefix)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listLimit)
	defer cancel()
	begin := time.Now()
	parts[prefix] = w.listUnder(ctx, prefix)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partly += time.Since(begin)
	return parts[prefix]
}

// tookPartly returns how long the store was busy with listings of prefixes since the last call.
func (w *watcher) tookPartly() (took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	took, w.partly = w.partly, 0
	return took
}

// sample records a round trip and summarizes the last ones.
func (w *watcher) sample(d time.Duration, err error) trips {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.samples = last(append(w.samples, d), maxSamples)
	}
	if len(w.samples) == 0 {
		return trips{}
	}
	sorted := slices.Sorted(slices.Values(w.samples))
	return trips{P50: sorted[len(sorted)/2], P99: sorted[len(sorted)*99/100], Last: d}
}

func (w *watcher) past(name string) record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.of(name)
}
