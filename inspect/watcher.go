package inspect

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	maxNames   = 10_000           // of a listing
	listLimit  = 10 * time.Second // of a listing
	idleAfter  = 10 * time.Second // when to stop listing the store after the last request
	checkEvery = time.Minute
	maxSamples = 120 // round trips that are kept
	probeName  = "holdfast:inspector"

	renewalStep = 500 * time.Millisecond // more than a listing is late, and less than a renewal adds
)

// A snapshot is the outcome of one listing.
type snapshot struct {
	at    time.Time
	locks []holdfast.Info // by name
	cut   bool            // there are more names, or there was no time to read them
	err   error
	trips trips
	seen  map[holdfast.ID]sighting // of holders

	findings []store.Finding // of the last checks
}

// A sighting is what several listings have shown about a holder.
type sighting struct {
	full    time.Duration // the longest remaining time, which is about the TTL
	left    time.Duration // in the newest listing
	renewed time.Time     // time of the first listing after its last renewal; zero if none was seen
}

// sightings updates the sightings of the previous listing with this one. Before is nil for the
// first listing.
func (s *snapshot) sightings(before *snapshot) {
	s.seen = make(map[holdfast.ID]sighting)
	for _, lock := range s.locks {
		for _, h := range lock.Holders {
			now := sighting{full: h.Left, left: h.Left}
			if before != nil {
				if old, ok := before.seen[h.ID]; ok {
					now.full, now.renewed = max(h.Left, old.full), old.renewed
					if expected := old.left - s.at.Sub(before.at); h.Left > expected+renewalStep {
						now.renewed = s.at
					}
				}
			}
			s.seen[h.ID] = now
		}
	}
}

// find returns a lock of the snapshot.
func (s *snapshot) find(name string) (holdfast.Info, bool) {
	i, ok := slices.BinarySearchFunc(s.locks, name, func(l holdfast.Info, name string) int { return cmp.Compare(l.Name, name) })
	if !ok {
		return holdfast.Info{Name: name}, false
	}
	return s.locks[i], true
}

// trips are times of round trips to the store.
type trips struct{ P50, P99, Last time.Duration }

// A watcher lists the store while a page is open. All browsers share it.
type watcher struct {
	client   *holdfast.Client
	interval time.Duration

	mu      sync.Mutex
	now     *snapshot
	next    chan struct{} // closed by the next snapshot
	looked  time.Time     // time of the last call of look
	running bool
	samples []time.Duration
	history history

	check    func(context.Context) []store.Finding // nil without checks
	checked  time.Time                             // when the last checks began
	findings []store.Finding
}

func newWatcher(c *holdfast.Client, s *settings) *watcher {
	return &watcher{client: c, interval: s.interval, check: s.checks, next: make(chan struct{})}
}

// look returns the newest snapshot, and a channel that is closed when the next one is ready. The
// snapshot is nil before the first listing, and if it is outdated because no page was requested
// for a while.
func (w *watcher) look() (*snapshot, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = time.Now()
	if !w.running {
		w.running = true
		if w.now != nil && time.Since(w.now.at) > 2*w.interval {
			w.now = nil // no page was requested for a while
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

// run lists the store until no page is open.
func (w *watcher) run() {
	for {
		s, took := w.list()
		w.mu.Lock()
		if s.err == nil {
			s.sightings(w.now)
			w.history.note(w.now, s)
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
		if w.idle(shown) {
			return
		}
	}
}

// runChecks checks the store once.
func (w *watcher) runChecks() {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	findings := w.check(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = findings
}

// idle reports whether no page was requested since the last snapshot was shown, nor shortly
// before. The next request then starts the listing again.
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
	s = &snapshot{at: time.Now()}
	_, s.err = w.client.Inspect(ctx, probeName)
	s.trips = w.sample(time.Since(s.at), s.err)
	if s.err != nil {
		return s, 0
	}
	for lock, err := range w.client.List(ctx, "") {
		if s.cut = len(s.locks) == maxNames || ctx.Err() != nil && len(s.locks) > 0; s.cut {
			break
		}
		if err != nil {
			s.err = err
			break
		}
		s.locks = append(s.locks, lock)
	}
	slices.SortStableFunc(s.locks, func(a, b holdfast.Info) int { return cmp.Compare(a.Name, b.Name) })
	// A name that changed between two pages of the listing may be on both.
	s.locks = slices.CompactFunc(s.locks, func(a, b holdfast.Info) bool { return a.Name == b.Name })
	return s, time.Since(s.at)
}

// sample records a round trip and summarizes the last ones.
func (w *watcher) sample(d time.Duration, err error) trips {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.samples = append(w.samples, d)
		if len(w.samples) > maxSamples {
			w.samples = slices.Delete(w.samples, 0, 1)
		}
	}
	if len(w.samples) == 0 {
		return trips{}
	}
	sorted := slices.Sorted(slices.Values(w.samples))
	return trips{P50: sorted[len(sorted)/2], P99: sorted[len(sorted)*99/100], Last: d}
}

// past returns the history of a name.
func (w *watcher) past(name string) record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.of(name)
}
