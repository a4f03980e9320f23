package rediscore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// heartbeat is short enough for tests to wait for.
const heartbeat = time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open returns a store on a server, or on a proxy in front of it.
func open(t testing.TB, addr string) *Store {
	t.Helper()
	return openAs(t, addr, "", "", Config{})
}

func openAs(t testing.TB, addr, user, password string, config Config) *Store {
	t.Helper()
	c := &testConn{dial: func() (*servers.RESPConn, error) { return servers.DialRESP(addr, nil, user, password) }}
	config.Heartbeat = heartbeat
	s, err := New(c, config)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// A testConn is a Conn without a client library: one connection with a pipeline for calls, and one
// for each subscription. It does not reconnect.
type testConn struct {
	dial func() (*servers.RESPConn, error)

	mu    sync.Mutex
	conn  *servers.RESPConn
	queue chan chan Reply // of calls in flight, in order
	err   error
}

// send sends a command, and returns a channel for its reply.
func (c *testConn) send(args []string) chan Reply {
	reply := make(chan Reply, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil && c.err == nil {
		if c.conn, c.err = c.dial(); c.err == nil {
			c.conn.Timeout = time.Hour
			c.queue = make(chan chan Reply, 10_000)
			go read(c.conn, c.queue)
		}
	}
	if c.err == nil {
		c.err = c.conn.Send(args...)
	}
	if c.err != nil {
		reply <- Reply{Err: c.err}
	} else {
		c.queue <- reply
	}
	return reply
}

func read(conn *servers.RESPConn, queue chan chan Reply) {
	for reply := range queue {
		v, err := conn.Receive()
		reply <- Reply{v, err}
	}
}

func (c *testConn) Run(ctx context.Context, calls ...Call) []Reply {
	results := make([]chan Reply, len(calls))
	for i, call := range calls {
		results[i] = c.send(call.command(false))
	}
	replies := make([]Reply, len(calls))
	for i, call := range calls {
		replies[i] = receive(ctx, results[i])
		if err := replies[i].Err; err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			replies[i] = receive(ctx, c.send(call.command(true)))
		}
		if call.Replicas > 0 && replies[i].Err == nil {
			replies[i].Err = &ReplicasError{Want: call.Replicas} // the server has none
		}
	}
	return replies
}

func (call *Call) command(text bool) []string {
	args := []string{call.Command}
	if call.Script != nil {
		args = []string{"EVALSHA", call.Script.SHA, strconv.Itoa(len(call.Keys))}
		if text {
			args[0], args[1] = "EVAL", call.Script.Text
		}
	}
	return append(append(args, call.Keys...), call.Args...)
}

func receive(ctx context.Context, reply chan Reply) Reply {
	select {
	case r := <-reply:
		return r
	case <-ctx.Done():
		return Reply{Err: ctx.Err()}
	}
}

func (c *testConn) Subscribe(ctx context.Context, channel string, on func(), message func(string)) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.Timeout = time.Hour
	if _, err := conn.Do("SUBSCRIBE", channel); err != nil {
		return err
	}
	on()
	for {
		v, err := conn.Receive()
		if err != nil {
			return err
		}
		message(v.([]any)[2].(string))
	}
}

func (c *testConn) Servers(context.Context) ([]Server, error) {
	return []Server{{Addr: "test", Do: func(ctx context.Context, args ...string) (any, error) {
		r := receive(ctx, c.send(args))
		return r.Value, r.Err
	}}}, nil
}

func (c *testConn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.New("the connection is closed")
	if c.conn != nil {
		c.conn.Close()
		close(c.queue)
		c.conn = nil
	}
}
