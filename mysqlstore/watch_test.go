package mysqlstore

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A watched is a watch of a connection, with the times at which it ended a call or the
// connection.
type watched struct {
	watch
	begun         time.Time
	aborted, idle moment
}

// A moment is the time from the beginning of the test to an event, or 0 if there was none.
type moment struct{ atomic.Int64 }

func (m *moment) get() time.Duration { return time.Duration(m.Load()) }

func newWatched(t *testing.T) *watched {
	w := &watched{begun: time.Now()}
	w.closeIdle = func() { w.idle.Store(int64(time.Since(w.begun))) }
	w.ctx, w.cancel = context.WithCancel(t.Context())
	raw, other := net.Pipe()
	w.connected(raw)
	go func() {
		other.Read(make([]byte, 1)) // until raw is closed
		w.aborted.Store(int64(time.Since(w.begun)))
	}()
	t.Cleanup(w.close)
	return w
}

func TestAWatchEndsACallThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.begin()
		time.Sleep(time.Second)
		w.done()
		w.begin() // the timer of the first call is still running
		time.Sleep(time.Minute)
		if want := time.Second + callTimeout; w.aborted.get() != want || w.ctx.Err() == nil {
			t.Errorf("ended after %v (%v), want %v", w.aborted.get(), w.ctx.Err(), want)
		}
	})
}

func TestAWatchLetsManyShortCallsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		for range 1000 {
			w.begin()
			time.Sleep(callTimeout / 7)
			w.done()
			time.Sleep(callTimeout / 11)
		}
		if w.aborted.get() != 0 || w.idle.get() != 0 {
			t.Errorf("ended a call after %v, the connection after %v", w.aborted.get(), w.idle.get())
		}
	})
}

func TestAWatchEndsACallSoonAfterItsCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		first := w.begin()
		w.done()
		second := w.begin()
		w.giveUp(first) // late: that call has ended
		time.Sleep(2 * grace)
		if w.aborted.get() != 0 {
			t.Fatal("the end of an earlier caller ended a call")
		}
		w.giveUp(second)
		time.Sleep(time.Minute)
		if w.aborted.get() != 3*grace {
			t.Errorf("ended after %v, want %v", w.aborted.get(), 3*grace)
		}
	})
}

func TestAWatchLetsACallEndWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.giveUp(w.begin())
		time.Sleep(grace / 2)
		w.done()
		w.begin()
		time.Sleep(callTimeout / 2)
		w.done()
		if w.aborted.get() != 0 || w.ctx.Err() != nil {
			t.Errorf("ended after %v", w.aborted.get())
		}
	})
}

func TestAWatchClosesAConnectionThatIsNotInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.begin()
		time.Sleep(time.Second)
		w.done()
		time.Sleep(time.Minute)
		if want := time.Second + clientIdle; w.idle.get() != want || w.aborted.get() != 0 {
			t.Errorf("closed after %v, ended a call after %v, want %v and no call", w.idle.get(), w.aborted.get(), want)
		}
	})
}
