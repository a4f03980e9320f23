package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
)

// connections are the connections of a client that the store owns. The library may open a
// connection while its client is being closed, and leave it open. closeAll closes it as well.
type connections struct {
	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
	made   atomic.Uint64 // number of connections opened so far
}

type connection struct {
	net.Conn
	all *connections
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// dial is the dialer of the client.
func (all *connections) dial(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	var conn net.Conn
	var err error
	if config != nil {
		secure := tls.Dialer{NetDialer: dialer, Config: config}
		conn, err = secure.DialContext(ctx, "tcp", addr)
	} else {
		conn, err = dialer.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	c := &connection{conn, all}
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
}
