package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// A conn is the connection of a client and the one to the server.
type conn struct {
	proxy  *Proxy
	client net.Conn
	pipes  map[*Link]*pipe // the two directions

	life   context.Context // ends with the connection
	cancel context.CancelFunc

	server net.Conn // nil until connected; guarded by the mutex of the proxy
}

func newConn(p *Proxy, client net.Conn) *conn {
	c := &conn{proxy: p, client: client}
	c.life, c.cancel = context.WithCancel(p.life)
	toServer := &pipe{conn: c, link: p.ToServer, wake: make(chan struct{}, 1)}
	toClient := &pipe{conn: c, link: p.ToClient, wake: make(chan struct{}, 1), other: toServer}
	toServer.other = toClient
	c.pipes = map[*Link]*pipe{p.ToServer: toServer, p.ToClient: toClient}
	return c
}

func (c *conn) run() {
	defer c.abort()
	server, err := c.dial()
	if err != nil {
		return
	}
	c.proxy.mu.Lock()
	c.server = server
	c.proxy.mu.Unlock()
	if c.life.Err() != nil {
		return // and reset the connection to the server too
	}
	toServer, toClient := c.pipes[c.proxy.ToServer], c.pipes[c.proxy.ToClient]
	var work sync.WaitGroup
	work.Go(func() { toServer.read(c.client) })
	work.Go(func() { toServer.write(server) })
	work.Go(func() { toClient.read(server) })
	work.Go(func() { toClient.write(c.client) })
	work.Wait()
	c.client.Close() // both ends were forwarded, so no reset is needed
	server.Close()
}

func (c *conn) dial() (net.Conn, error) {
	patient := c.proxy.patient.Load()
	ctx, cancel := context.WithTimeout(c.life, dialLimit)
	defer cancel()
	for {
		server, err := new(net.Dialer).DialContext(ctx, "tcp", c.proxy.server)
		if err == nil || !patient {
			return server, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(dialPause):
		}
	}
}

func (c *conn) abort() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.abortLocked()
}

func (c *conn) abortLocked() {
	delete(c.proxy.conns, c)
	c.cancel()
	reset(c.client)
	if c.server != nil {
		reset(c.server)
	}
}

// reset closes a connection so that the other side sees an error, and loses bytes in flight.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}
