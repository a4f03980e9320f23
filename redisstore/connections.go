package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// connections are those of a client that the store owns, including one that the library opens while its client
// is being closed, and leaves open.
type connections struct {
	dialer func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error)

	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
	made   atomic.Uint64 // number of connections opened so far
}

// base is the zero of the times of connections. Unlike the time of day, they are never set back.
var base = time.Now()

func sinceBase(t time.Time) int64 { return int64(t.Sub(base)) }

type connection struct {
	net.Conn
	all *connections

	// When bytes were last sent and received. A new connection counts as one that has just received
	// something, because the library bounds its handshake.
	wrote, read atomic.Int64

	asked atomic.Int64 // when bytes were first sent after the last were received; 0 before

	trip  atomic.Int64 // how long the first reply took, in nanoseconds; 0 before
	ended atomic.Bool  // it was closed because the server was silent
}

var errSilent = errors.New("no reply in time")

func (c *connection) Write(b []byte) (int, error) {
	now := sinceBase(time.Now())
	c.asked.CompareAndSwap(0, now)
	c.wrote.Store(now)
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if now := sinceBase(time.Now()); n > 0 {
		c.read.Store(now)
		c.asked.Store(0)
		if wrote := c.wrote.Load(); wrote > 0 && c.trip.Load() == 0 {
			c.trip.Store(max(1, now-wrote))
		}
	}
	return n, c.explain(err)
}

// explain replaces the error of a connection that was closed because the server was silent.
func (c *connection) explain(err error) error {
	if err != nil && c.ended.Load() {
		return errSilent
	}
	return err
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// dialTCP is the dialer of connections that need no other one.
func dialTCP(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return dialer.DialContext(ctx, "tcp", addr)
	}
	secure := tls.Dialer{NetDialer: dialer, Config: config}
	return secure.DialContext(ctx, "tcp", addr)
}

// dial is the dialer of the client.
func (all *connections) dial(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	conn, err := all.dialer(ctx, addr, dialer, config)
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	c := &connection{Conn: conn, all: all}
	c.read.Store(sinceBase(time.Now()))
	if all.open == nil {
		all.open = make(map[*connection]struct{})
	}
	all.open[c] = struct{}{}
	all.made.Add(1)
	return c, nil
}

// closeAll closes all connections, and if forGood is set, also those that are still being opened or will be.
func (all *connections) closeAll(forGood bool) {
	all.mu.Lock()
	all.closed = all.closed || forGood
	all.mu.Unlock()
	all.closeIf(func(*connection) bool { return true })
}

// closeSilent closes the connections on which nothing was received since a time.
func (all *connections) closeSilent(since time.Time) {
	all.closeIf(func(c *connection) bool {
		silent := c.read.Load() < sinceBase(since)
		c.ended.Store(silent)
		return silent
	})
}

// closeUnanswered closes the connections on which something was sent after a time, but nothing was received, and
// a reply has been missing for most of that time, and for several times as long as a reply usually takes.
func (all *connections) closeUnanswered(since time.Time) {
	t, now := sinceBase(since), sinceBase(time.Now())
	all.closeIf(func(c *connection) bool {
		missing := now - c.asked.Load()
		silent := c.wrote.Load() >= t && c.read.Load() < t && missing > (now-t)/2 && missing > 4*c.trip.Load()
		c.ended.Store(silent)
		return silent
	})
}

func (all *connections) closeIf(condition func(*connection) bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for c := range all.open {
		if condition(c) {
			c.Conn.Close()
			delete(all.open, c)
		}
	}
}

// none reports whether no connection is open.
func (all *connections) none() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.open) == 0 && !all.closed
}
