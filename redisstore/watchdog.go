package redisstore

import (
	"sync/atomic"
	"time"
)

const (
	// maxSilence is how long a server may send nothing while a call is in flight. After that, the
	// connection is closed, which ends all calls on it.
	maxSilence = 2500 * time.Millisecond

	// tick is the precision with which maxSilence is measured.
	tick = 250 * time.Millisecond

	// callTimeout is the longest time that a call to a silent server can take as a result, unless
	// this process itself is paused. A call behind others may take longer while their replies arrive.
	callTimeout = maxSilence + 2*tick
)

// A watchdog bounds how long calls to a single server take if the server is silent. It needs no context or
// timer for each call: a context with a deadline makes a call a fifth more expensive.
//
// It counts the calls in flight by the tick in which they began. While there are any, a timer checks at each
// tick whether one of them has been in flight for too long. If so, the connections on which nothing was
// received for that time are closed. One that still brings replies stays open: if the client makes more calls
// than the server can answer in time, closing it would make that worse.
type watchdog struct {
	conns  *connections
	start  time.Time
	counts [64]atomic.Int32 // by tick modulo 64; a call that has been queued for 16 s counts as a younger one
	armed  atomic.Bool      // the timer runs
	waited atomic.Bool      // the last check did nothing because it was late
}

func newWatchdog(conns *connections) *watchdog {
	return &watchdog{conns: conns, start: time.Now()}
}

func (w *watchdog) now() int { return int(time.Since(w.start) / tick) }

// begin counts a call. Its result must be passed to end.
func (w *watchdog) begin() *atomic.Int32 {
	count := &w.counts[w.now()%len(w.counts)]
	count.Add(1)
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.arm()
	}
	return count
}

func (w *watchdog) end(count *atomic.Int32) { count.Add(-1) }

// arm starts the timer. If it fires late, the process had no CPU time, and may not have read replies.
func (w *watchdog) arm() {
	next := w.now() + 1
	time.AfterFunc(tick, func() { w.check(w.now() > next+1) })
}

// check closes the silent connections if a call has been in flight for too long, unless the timer fired late;
// the second of two late checks closes them. It runs again after a tick, unless no call is in flight.
func (w *watchdog) check(late bool) {
	waits := late && !w.waited.Load()
	w.waited.Store(waits)
	if !waits && w.inFlight(int(maxSilence/tick)) > 0 {
		w.conns.closeSilent(time.Now().Add(-maxSilence))
	}
	if w.inFlight(0) == 0 {
		w.armed.Store(false)
		// A call that began meanwhile has seen that the timer is armed.
		if w.inFlight(0) == 0 || !w.armed.CompareAndSwap(false, true) {
			return
		}
	}
	w.arm()
}

// inFlight returns how many calls in flight began at least some ticks ago.
func (w *watchdog) inFlight(ticks int) (calls int32) {
	for now := w.now(); ticks < len(w.counts); ticks++ {
		calls += w.counts[(now-ticks+len(w.counts))%len(w.counts)].Load()
	}
	return calls
}
