package faultproxy

import (
	"context"
	"io"
	"net"
	"slices"
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
		if err == nil || !patient || ctx.Err() != nil {
			return server, err
		}
		time.Sleep(dialPause)
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

const readSize = 32 << 10

// A pipe is one direction of one connection.
type pipe struct {
	conn  *conn
	link  *Link
	other *pipe
	wake  chan struct{} // there may be bytes to write

	// Guarded by the mutex of the proxy.
	queue  []chunk
	ended  bool // the end was forwarded
	broken bool // writing failed
}

// A chunk holds the bytes of one read, or the end of the stream.
type chunk struct {
	data    []byte
	end     error // io.EOF, or why reading failed
	arrived time.Time
}

func (p *pipe) read(from net.Conn) {
	buffer := make([]byte, readSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.link.show(p, buffer[:n])
			p.put(chunk{data: slices.Clone(buffer[:n])})
		}
		if err != nil {
			p.put(chunk{end: err})
			return
		}
	}
}

func (p *pipe) put(c chunk) {
	p.conn.proxy.mu.Lock()
	defer p.conn.proxy.mu.Unlock()
	if c.end == nil && (p.broken || p.link.mode == drop) {
		return
	}
	c.arrived = time.Now()
	p.queue = append(p.queue, c)
	p.wakeUp()
}

// discard drops the queued bytes, but not the end of the stream. The caller holds the mutex.
func (p *pipe) discard() {
	p.queue = slices.DeleteFunc(p.queue, func(c chunk) bool { return c.end == nil })
	p.wakeUp()
}

func (p *pipe) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write forwards bytes until it has forwarded the end of the stream.
func (p *pipe) write(to net.Conn) {
	for {
		c, ok := p.next()
		switch {
		case !ok:
			return
		case c.end == io.EOF:
			to.(*net.TCPConn).CloseWrite()
			p.over(&p.ended)
			return
		case c.end != nil:
			p.conn.abort()
			return
		}
		n, err := to.Write(c.data)
		p.link.bytes.Add(int64(n))
		if err != nil {
			p.over(&p.broken)
		}
	}
}

// next takes a chunk that may be forwarded from the queue, or returns false when the connection has ended.
func (p *pipe) next() (c chunk, ok bool) {
	for {
		var due <-chan time.Time
		p.conn.proxy.mu.Lock()
		if len(p.queue) > 0 && p.link.mode == pass {
			wait := time.Until(p.queue[0].arrived.Add(p.link.delay))
			if wait <= 0 {
				c, p.queue = p.queue[0], p.queue[1:]
				p.conn.proxy.mu.Unlock()
				return c, p.conn.life.Err() == nil
			}
			due = time.After(wait)
		}
		p.conn.proxy.mu.Unlock()
		select {
		case <-p.wake:
		case <-due:
		case <-p.conn.life.Done():
			return chunk{}, false
		}
	}
}

// over records that this direction has ended or is broken, because its receiver is gone. The sender learns of the
// latter through the opposite direction, subject to the faults there. It gets a reset if that direction has ended,
// as without a proxy.
func (p *pipe) over(how *bool) {
	p.conn.proxy.mu.Lock()
	defer p.conn.proxy.mu.Unlock()
	*how = true
	if p.broken {
		p.discard()
	}
	if p.ended && p.other.broken || p.broken && p.other.ended {
		p.conn.abortLocked()
	}
}
