package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// Numbers (xids) of packets that are not requests of callers.
	xidEvent int32 = -1
	xidPing  int32 = -2
	xidAuth  int32 = -4

	eventChildren int32 = 4 // the kind of an event: a child was created or deleted

	maxFrame   = 256 << 20     // more than any reply, even one that lists a million nodes
	frameLimit = 4 * hangLimit // time limit from the first byte of a reply to the last
	secondLook = hangLimit / 30
)

// A link is one connection with a session.
type link struct {
	c      *Conn
	net    net.Conn
	in     *bufio.Reader
	writer sync.WaitGroup
	wake   chan struct{} // tells the writer that out is not empty

	replied bool // to a call or a ping; used by the reading goroutine only

	// Guarded by the mutex of c.
	out      []byte
	sent     []*Call // in flight, in order
	xid      int32
	pinged   bool          // a ping is in flight
	silence  time.Duration // how long the server may be silent while it owes a reply
	deadline time.Time     // when it has been silent for too long
}

// connect connects to a server and begins or resumes the session.
func (c *Conn) connect(server string) (*link, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.silence())
	defer cancel()
	conn, err := c.dial(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", server, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	l := &link{c: c, net: conn, in: bufio.NewReaderSize(conn, 64<<10), wake: make(chan struct{}, 1)}
	err = l.greet()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("begin a session at %s: %w", server, err)
	}
	l.start()
	return l, nil
}

func (c *Conn) dial(ctx context.Context, server string) (net.Conn, error) {
	if c.opts.TLS == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", server)
	}
	return (&tls.Dialer{Config: c.opts.TLS()}).DialContext(ctx, "tcp", server)
}

// greet asks for the session. A server closes the connection if it has no leader, or if it is behind the last
// change that the session has seen. If all servers have lost their data, none of them will ever resume it. So
// if a server refuses to after the session timeout, greet asks for a new one.
func (l *link) greet() error {
	c := l.c
	ask, resume := c.session, !c.refused
	if c.refused = false; !resume {
		ask = session{}
	}
	hello := encode(int32(0), ask.zxid, int32(c.opts.Timeout.Milliseconds()), ask.id, ask.password[:], false)
	if _, err := l.net.Write(encode(hello)); err != nil {
		return err
	}
	frame, err := l.readFrame(nil)
	if err != nil {
		if c.refused = err == io.EOF && ask.id != 0 && time.Since(c.lost) > c.timeout; c.refused {
			c.next--
		}
		return err
	}
	r := &reader{b: frame}
	r.int() // the version of the protocol
	timeout := time.Duration(r.int()) * time.Millisecond
	id, password := r.long(), r.bytes()
	switch {
	case r.failed || len(password) > len(ask.password):
		return errReply
	case id == 0 || timeout <= 0:
		c.next-- // this server answers
		c.end()
		return ErrSessionExpired
	case !resume:
		c.end()
	}
	c.session.id, c.timeout = id, timeout
	copy(c.session.password[:], password)
	return nil
}

// start sends the queued calls, and lets later calls be sent at once.
func (l *link) start() {
	c := l.c
	c.opts.Session(c.session.id, c.timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.silence = c.silence()
	if c.opts.Auth != "" {
		auth := Op{opAuth, encode(int32(0), "digest", c.opts.Auth), nil}
		l.out = auth.appendTo(l.out, xidAuth)
	}
	l.writer.Go(l.write)
	l.send(c.queue...)
	c.link, c.queue = l, nil
}

// send gives calls to the writer. The caller holds the mutex.
func (l *link) send(calls ...*Call) {
	for _, call := range calls {
		l.xid = l.xid%(1<<30) + 1
		call.xid = l.xid
		l.out = call.appendTo(l.out, call.xid)
	}
	idle := len(l.sent) == 0
	if l.sent = append(l.sent, calls...); idle {
		l.waitFor(l.silence)
	}
	select {
	case l.wake <- struct{}{}:
	default: // the writer was already told
	}
}

// waitFor sets how long the server may be silent. The caller holds the mutex.
func (l *link) waitFor(d time.Duration) {
	l.deadline = time.Now().Add(d)
	l.net.SetReadDeadline(l.deadline)
}

// write writes packets, many at a time, without a deadline. A server that does not read owes a reply, so serve
// closes its connection.
func (l *link) write() {
	var data []byte
	for range l.wake {
		l.c.mu.Lock()
		data, l.out = l.out, data[:0]
		l.c.mu.Unlock()
		if _, err := l.net.Write(data); err != nil {
			l.net.Close() // ends serve, which closes wake
		}
	}
}

// close ends the calls without a reply with an error.
func (l *link) close() {
	l.net.Close()
	l.c.mu.Lock()
	l.c.link = nil
	close(l.wake)
	sent := l.sent
	l.c.mu.Unlock()
	l.writer.Wait()
	finishAll(sent, ErrUnknown)
}

// serve reads replies and events until the connection ends.
func (l *link) serve() error {
	defer context.AfterFunc(l.c.ctx, func() { l.net.Close() })()
	var frame []byte
	for {
		_, err := l.in.Peek(4)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err = l.silent(); err == nil {
				continue
			}
			l.net.SetReadDeadline(time.Now().Add(secondLook)) // maybe this process was slow, and not the server
			if _, late := l.in.Peek(4); late == nil {
				err = nil
			}
		}
		if err == nil {
			frame, err = l.readFrame(frame)
		}
		if err == nil {
			err = l.received(&reader{b: frame})
		}
		if err != nil {
			return err
		}
	}
}

// silent is called when the read deadline expires. A server that owes a reply is hung. One that owes none is pinged.
func (l *link) silent() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	switch {
	case time.Now().Before(l.deadline): // a call has set it meanwhile
	case len(l.sent) > 0 || l.pinged:
		return errHung
	default:
		l.pinged = true
		ping := Op{kind: opPing}
		l.out = ping.appendTo(l.out, xidPing)
		l.send()
	}
	return nil
}

// readFrame reads one packet into a buffer and returns its content.
func (l *link) readFrame(buf []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(l.in, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n > maxFrame {
		return nil, errReply
	}
	if l.in.Buffered() < n {
		l.c.mu.Lock()
		l.waitFor(frameLimit)
		l.c.mu.Unlock()
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err := io.ReadFull(l.in, buf[:n])
	return buf[:n], err
}

func (l *link) received(r *reader) error {
	c := l.c
	xid, zxid, code := r.int(), r.long(), r.int()
	if r.failed {
		return errReply
	}
	c.session.zxid = max(c.session.zxid, zxid)
	var call *Call
	c.mu.Lock()
	if xid > 0 && len(l.sent) > 0 && l.sent[0].xid == xid {
		call = l.sent[0]
		l.sent = l.sent[1:]
		if c.patience > 0 {
			c.patience = 0
			l.silence = c.silence()
		}
	}
	if l.pinged = l.pinged && xid != xidPing; l.pinged || len(l.sent) > 0 {
		l.waitFor(l.silence)
	} else {
		l.waitFor(c.timeout / pings)
	}
	c.mu.Unlock()
	l.replied = l.replied || call != nil || xid == xidPing
	switch {
	case call != nil:
		return call.answered(code, r)
	case xid == xidEvent:
		kind := r.int()
		r.take(4) // the state of the connection
		if path := string(r.bytes()); path != "" {
			c.opts.Event(path, kind == eventChildren)
		}
	case xid == xidAuth && code != 0:
		return Error(code)
	case xid >= 0 || r.failed:
		return errReply
	}
	return nil
}

// answered finishes a call with its reply. An error ends the connection.
func (c *Call) answered(code int32, r *reader) error {
	switch {
	case code != 0:
		c.Err = Error(code)
	case c.kind == opMulti:
		c.Parts, c.Err = c.decodeMulti(r)
	default:
		c.Result = c.decode(r)
	}
	if r.failed {
		c.finish(ErrUnknown)
		return errReply
	}
	ended := c.kind == opClose || c.Err == ErrSessionExpired || c.Err == errSessionMoved
	c.finish(nil)
	if ended {
		return ErrUnknown
	}
	return nil
}
