package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// busy is a script that keeps the server busy for a while.
const busy = `
local function now() local t = redis.call('TIME'); return t[1] * 1000 + t[2] / 1000 end
local till = now() + tonumber(ARGV[1])
while now() < till do end
return 1`

// dialServer opens a store on a server of its own.
func dialServer(t *testing.T) *Store {
	server := servers.StartRedis(t, servers.RedisOptions{})
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true}
	s, err := Dial(t.Context(), option, rediscore.Config{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// A connection that brings replies is not closed, even if a call waits behind many others.
func TestQueuedCallsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	s := dialServer(t)
	const calls = 4 // together they take longer than callTimeout
	// The server sends the replies to all calls that it has read at once, so each call must be long.
	long := strings.Repeat("x", 1<<16)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			call := rediscore.Call{Command: "EVAL", Args: []string{busy, "0", "1000", long}}
			if reply := s.conn.Run(t.Context(), call)[0]; reply.Err != nil {
				t.Errorf("a call that waits for others: %v", reply.Err)
			}
		})
	}
	wg.Wait()
}

// The server is busy for longer than one of two calls can wait.
func TestAShortDeadlineDoesNotCloseTheConnectionOfOtherCalls(t *testing.T) {
	t.Parallel()
	s := dialServer(t)
	suites.Granted(t, s, suites.Request("warm"))
	s.conn.owned.closeIf(func(c *connection) bool {
		c.trip.Store(1)
		return false
	})
	var other sync.WaitGroup
	other.Go(func() {
		call := rediscore.Call{Command: "EVAL", Args: []string{busy, "0", "800"}}
		if reply := s.conn.Run(t.Context(), call)[0]; reply.Err != nil {
			t.Errorf("a call without a deadline: %v", reply.Err)
		}
	})
	time.Sleep(100 * time.Millisecond) // for the server to read that call
	ctx, cancel := context.WithTimeout(t.Context(), 3*suspectAfter/2)
	defer cancel()
	if answer, err := s.Acquire(ctx, suites.Request("n")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v, want DeadlineExceeded", answer, err)
	}
	other.Wait()
}

// After a pause of the process, a reply may have arrived that was not read yet.
func TestALateCheckOfTheWatchdogClosesNothing(t *testing.T) {
	all := &connections{open: make(map[*connection]struct{})}
	client, server := net.Pipe()
	defer server.Close()
	silent := &connection{Conn: client, all: all}
	silent.read.Store(sinceBase(time.Now().Add(-callTimeout))) // before the program began
	all.open[silent] = struct{}{}
	w := newWatchdog(all)
	w.armed.Store(true) // the test calls check itself
	defer w.end(w.begin())
	w.start = w.start.Add(-callTimeout)
	for i, open := range []bool{true, false} {
		if w.check(true); all.none() == open {
			t.Errorf("check %d: open is %t", i, !open)
		}
	}
}

// A deafConn loses replies from a certain time on.
type deafConn struct {
	net.Conn
	deaf   atomic.Bool
	closed atomic.Pointer[time.Time]
}

func (d *deafConn) Read(b []byte) (n int, err error) {
	for n, err = d.Conn.Read(b); err == nil && d.deaf.Load(); n, err = d.Conn.Read(b) {
	}
	return n, err
}

func (d *deafConn) Close() error {
	now := time.Now()
	d.closed.CompareAndSwap(nil, &now)
	return d.Conn.Close()
}

// An oddContext cannot be compared.
type oddContext struct {
	context.Context
	_ map[string]string
}

// Only a single server has a watchdog. The request itself continues when the call has ended.
func TestACallThatTimesOutLeavesNoSilentConnection(t *testing.T) {
	t.Parallel()
	group := servers.StartSentinel(t, 0, 1, servers.RedisOptions{})
	option := rueidis.ClientOption{InitAddress: group.Addrs(), Sentinel: rueidis.SentinelOption{MasterSet: servers.SentinelName}}
	var newest atomic.Pointer[deafConn] // to the primary
	option.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		c, err := dialTCP(ctx, addr, dialer, config)
		if err != nil || addr != group.Nodes[0].Addr() {
			return c, err
		}
		d := &deafConn{Conn: c}
		newest.Store(d)
		return d, nil
	}
	s, err := Dial(t.Context(), option, rediscore.Config{})
	must(t, err)
	defer s.Close()
	_, err = s.List(oddContext{Context: t.Context()}, store.Query{Name: "n"})
	must(t, err)
	fallSilent := func(name string) *deafConn {
		suites.Granted(t, s, suites.Request("warm "+name))
		s.conn.owned.closeIf(func(c *connection) bool {
			c.trip.Store(1) // on a busy machine, the first reply may take long
			return false
		})
		silent := newest.Load()
		silent.deaf.Store(true)
		return silent
	}
	wantClosed := func(silent *deafConn, name string, after time.Time) {
		if took := silent.closed.Load().Sub(after); took > 4*time.Second { // after more than 5 s, a PING of the library fails
			t.Errorf("%s: the connection was closed after %v", name, took)
		}
	}
	plain, complete := suites.Request("plain"), suites.Queued("complete")
	complete.Mode = store.Shared
	for _, limit := range []time.Duration{suspectLate / 4, 3 * suspectLate / 2} {
		for _, req := range []store.Request{plain, complete} {
			req.ID, req.Name = store.NewID(), fmt.Sprint(req.Name, limit)
			silent := fallSilent(req.Name)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			if answer, err := s.Acquire(ctx, req); err == nil { // the connection may be closed at the same moment
				t.Errorf("%s without a reply: %+v", req.Name, answer)
			}
			cancel()
			ended := time.Now()
			suites.Granted(t, s, req)
			wantClosed(silent, req.Name, ended)
		}
	}
	silent, begin := fallSilent("batch"), time.Now()
	var all sync.WaitGroup
	for i := range 16 { // without a deadline, so only the batch of most of them has one
		all.Go(func() { s.Acquire(context.Background(), suites.Request(fmt.Sprint("batch ", i))) })
	}
	all.Wait()
	wantClosed(silent, "batch", begin)
}

// A call that has been queued behind others for a while ends soon after the server fell silent.
func TestAQueuedCallEndsWhenTheServerFallsSilent(t *testing.T) {
	for _, queued := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			all := &connections{dialer: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return near, nil }}
			c, err := all.dial(t.Context(), "", nil, nil)
			must(t, err)
			defer all.closeAll(true)
			dog := newWatchdog(all)
			defer dog.end(dog.begin())
			go func() { // replies to other calls
				for begin := time.Now(); time.Since(begin) < queued; time.Sleep(100 * time.Millisecond) {
					far.Write([]byte("x"))
				}
			}()
			begin := time.Now()
			for err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if silent := time.Since(begin) - queued; silent > callTimeout {
				t.Errorf("after %v in the queue, the connection was closed after %v of silence, want at most %v", queued, silent, callTimeout)
			}
		})
	}
}
