package mysqlstore

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	// callTimeout bounds the statements of calls. Their callers may give up earlier.
	callTimeout = 3 * time.Second

	// grace is how long a call continues after its caller has given up. It is longer than a round
	// trip to most servers: if a statement has not ended by then, the connection is closed, and
	// the request may arrive late. If the server hangs, a caller returns later by this time.
	grace = 100 * time.Millisecond
)

// A watch ends calls that take too long, and connections that are not in use. Its timer keeps
// running from call to call, because that costs less than starting a timer for each call.
type watch struct {
	closeIdle func() // closes the connection, unless it is in use

	mu     sync.Mutex
	ctx    context.Context // ends with a call that is ended early, and is then replaced
	cancel context.CancelFunc
	raw    net.Conn // the network connection, if known; closing it ends statements too
	call   int      // number of the call
	busy   bool     // that call is going on
	end    time.Time
	timer  *time.Timer
	next   time.Time // when the timer fires; zero if it does not
	closed bool
}

// begin begins a call, and returns its number.
func (w *watch) begin() (call int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call++
	w.busy = true
	w.endAt(time.Now().Add(callTimeout))
	return w.call
}

// giveUp ends a call soon, because its caller has given up.
func (w *watch) giveUp(call int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy && w.call == call {
		w.endAt(time.Now().Add(grace))
	}
}

// done ends the call. From now on the connection is not in use.
func (w *watch) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	w.endAt(time.Now().Add(clientIdle))
}

// endAt sets when the call or the connection ends. The caller holds the mutex.
func (w *watch) endAt(end time.Time) {
	w.end = end
	if w.closed || !w.next.IsZero() && !end.Before(w.next) {
		return
	}
	w.next = end
	if d := time.Until(end); w.timer == nil {
		w.timer = time.AfterFunc(d, w.look)
	} else {
		w.timer.Reset(d)
	}
}

// look is called by the timer. It ends a call that has taken too long, or an idle connection.
func (w *watch) look() {
	w.mu.Lock()
	w.next = time.Time{}
	switch {
	case w.closed:
	case time.Now().Before(w.end):
		w.endAt(w.end)
	case w.busy:
		w.abort()
	default:
		defer w.closeIdle()
	}
	w.mu.Unlock()
}

// abort ends the statement in flight. The caller holds the mutex.
func (w *watch) abort() {
	w.cancel()
	if w.raw != nil {
		w.raw.Close()
	}
}

// connected sets the network connection to close when a call must end. It may be nil.
func (w *watch) connected(raw net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raw = raw
}

// close ends the call in progress, and all later ones.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.abort()
	if w.timer != nil {
		w.timer.Stop()
	}
}
