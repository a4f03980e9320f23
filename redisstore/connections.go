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

// connections are the connections of a client that the store owns. The library may open a
// connection while its client is being closed, and leave it open. closeAll closes it as well.
type connections struct {
	dialer func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error)

	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
	ended  time.Time     // when connections were last closed here
	made   atomic.Uint64 // number of connections opened so far
}

type connection struct {
	net.Conn
	all *connections

	// When bytes were last sent and received, in Unix nanoseconds. A new connection counts as one
	// that has just received something, because the library bounds its handshake.
	wrote, read atomic.Int64
}

func (c *connection) Write(b []byte) (int, error) {
	c.wrote.Store(time.Now().UnixNano())
	return c.Conn.Write(b)
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.read.Store(time.Now().UnixNano())
	}
	return n, err
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
	c.read.Store(time.Now().UnixNano())
	if all.open == nil {
		all.open = make(map[*connection]struct{})
	}
	all.open[c] = struct{}{}
	all.made.Add(1)
	return c, nil
}

// closeAll closes all connections. If forGood is set, connections that are still being opened are
// closed as well, and no further ones can be opened.
func (all *connections) closeAll(forGood bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = all.closed || forGood
	for c := range all.open {
		c.Conn.Close()
	}
	clear(all.open)
	all.ended = time.Now()
}

// closeSilent closes the connections on which something was sent after a time, and nothing was
// received.
func (all *connections) closeSilent(since time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for c := range all.open {
		if t := since.UnixNano(); c.wrote.Load() >= t && c.read.Load() < t {
			c.Conn.Close()
			delete(all.open, c)
			all.ended = time.Now()
		}
	}
}

// none reports whether no connection is open.
func (all *connections) none() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.open) == 0 && !all.closed
}

// unsent reports whether a call that began at a time failed because its connection had been closed
// here before, so that nothing was sent. It takes the library a moment to notice that.
func (all *connections) unsent(begin time.Time, err error) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return errors.Is(err, net.ErrClosed) && !all.closed && all.ended.Before(begin)
}
