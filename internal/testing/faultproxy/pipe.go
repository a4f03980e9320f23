package faultproxy

import (
	"io"
	"net"
	"slices"
	"time"
)

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
			p.end()
			return
		case c.end != nil:
			p.conn.abort()
			return
		}
		n, err := to.Write(c.data)
		p.link.bytes.Add(int64(n))
		if err != nil {
			p.fail()
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

// end records the end of this direction. If the other is broken, the receiver gets a reset, as without a proxy.
func (p *pipe) end() {
	p.conn.proxy.mu.Lock()
	defer p.conn.proxy.mu.Unlock()
	p.ended = true
	if p.other.broken {
		p.conn.abortLocked()
	}
}

// fail records that the receiver is gone. The sender learns of it through the opposite direction,
// subject to the faults there, unless that direction has ended.
func (p *pipe) fail() {
	p.conn.proxy.mu.Lock()
	defer p.conn.proxy.mu.Unlock()
	p.broken = true
	p.discard()
	if p.other.ended {
		p.conn.abortLocked()
	}
}
