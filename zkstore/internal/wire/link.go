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
	// Numbers of packets that are no requests of a caller.
	xidEvent int32 = -1
	xidPing  int32 = -2
	xidAuth  int32 = -4

	maxFrame   = 256 << 20     // beyond every reply, also one that lists a million nodes
	frameLimit = 4 * hangLimit // from the first byte of a reply to its last
)

// A link is one connection with a session.
type link struct {
	c      *Conn
	net    net.Conn
	in     *bufio.Reader
	writer sync.WaitGroup
	wake   chan struct{} // tells the writer that there is something in out

	replied bool // to a call or a ping; of the goroutine that reads

	// With the mutex of c.
	out      []byte
	sent     []*Call // not answered, in order
	xid      int32
	pinged   bool          // and that was not answered
	deadline time.Time     // of reading
	silence  time.Duration // that the server may keep while it owes a reply
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
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
	if err != nil || c.opts.TLS == nil {
		return conn, err
	}
	config, err := c.opts.TLS()
	if err == nil {
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(server)
		}
		secure := tls.Client(conn, config)
		if err = secure.HandshakeContext(ctx); err == nil {
			return secure, nil
		}
	}
	conn.Close()
	return nil, err
}

// greet asks for the session. A server that has not seen what the session has seen closes the
// connection, as does one that serves nobody. If all servers have lost their data no one ever
// resumes the session. So when its time is over, a server that refuses it is asked for a new one.
func (l *link) greet() error {
	c := l.c
	session, zxid, password := c.session, c.zxid, make([]byte, 16)
	copy(password, c.password)
	resume := !c.refused
	if c.refused = false; !resume {
		session, zxid, password = 0, 0, make([]byte, 16)
	}
	hello := encode(int32(0), zxid, int32(c.opts.Timeout.Milliseconds()), session, password, false)
	if _, err := l.net.Write(encode(hello)); err != nil {
		return err
	}
	frame, err := l.readFrame(nil)
	if err != nil {
		if c.refused = err == io.EOF && session != 0 && time.Since(c.lost) > c.timeout; c.refused {
			c.next--
		}
		return err
	}
	r := &reader{b: frame}
	r.int() // the version of the protocol
	timeout := time.Duration(r.int()) * time.Millisecond
	session, password = r.long(), r.bytes()
	switch {
	case r.failed || len(password) > 16:
		return errReply
	case session == 0 || timeout <= 0:
		c.next-- // this server answers
		c.end()
		return errSessionExpired
	case !resume:
		c.end()
	}
	c.session, c.password, c.timeout = session, password, timeout
	return nil
}

// start sends the calls that wait, and lets others be sent.
func (l *link) start() {
	c := l.c
	c.opts.Session(c.session, c.timeout)
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

// send sends calls. It needs the mutex.
func (l *link) send(calls ...*Call) {
	for _, call := range calls {
		l.xid = l.xid%(1<<30) + 1
		call.xid = l.xid
		l.out = call.appendTo(l.out, call.xid)
	}
	if len(l.sent) == 0 {
		l.waitFor(l.silence)
	}
	l.sent = append(l.sent, calls...)
	select {
	case l.wake <- struct{}{}:
	default: // the writer is about to look
	}
}

// waitFor sets for how long the server may be silent. It needs the mutex.
func (l *link) waitFor(d time.Duration) {
	l.deadline = time.Now().Add(d)
	l.net.SetReadDeadline(l.deadline)
}

// write writes what was sent, many packets at a time.
func (l *link) write() {
	var data []byte
	for range l.wake {
		l.c.mu.Lock()
		data, l.out = l.out, data[:0]
		limit := l.silence
		l.c.mu.Unlock()
		l.net.SetWriteDeadline(time.Now().Add(limit))
		if _, err := l.net.Write(data); err != nil {
			l.net.Close() // ends serve, which closes wake
		}
	}
}

// close fails the calls that the server has not answered.
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

// silent is called when the server has sent nothing for as long as it may. If it owes nothing it
// is tested.
func (l *link) silent() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	switch {
	case time.Now().Before(l.deadline): // something was sent since
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

// readFrame reads one packet into a buffer and returns what is in it.
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
		l.net.SetReadDeadline(time.Now().Add(frameLimit))
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err := io.ReadFull(l.in, buf[:n])
	return buf[:n], err
}

// received deals with a packet.
func (l *link) received(r *reader) error {
	c := l.c
	xid, zxid, code := r.int(), r.long(), r.int()
	if r.failed {
		return errReply
	}
	c.zxid = max(c.zxid, zxid)
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
		r.take(8) // what happened, and the state of the connection
		if path := string(r.bytes()); path != "" {
			c.opts.Event(path)
		}
	case xid == xidAuth && code != 0:
		return Error(code)
	case xid >= 0 || r.failed:
		return errReply
	}
	return nil
}

// answered finishes a call. The error is one that ends the connection.
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
	ended := c.kind == opClose || c.Err == errSessionExpired || c.Err == errSessionMoved
	c.finish(nil)
	if ended {
		return ErrUnknown
	}
	return nil
}
