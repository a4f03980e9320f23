package faultproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

const (
	dialLimit   = 5 * time.Second       // to connect to the server
	dialPause   = 10 * time.Millisecond // between two attempts of a patient proxy
	listenLimit = 5 * time.Second       // to listen on the port again
)

// A Proxy forwards TCP connections to one server. Its methods are safe for concurrent use.
type Proxy struct {
	ToServer *Link // requests
	ToClient *Link // replies

	t      testing.TB
	addr   string
	server string

	life   context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	patient  atomic.Bool
	accepted atomic.Int64

	mu       sync.Mutex   // guards the links and pipes as well
	listener net.Listener // nil while cut
	conns    map[*conn]struct{}
}

// Start starts a proxy in front of a server. It is closed when the test ends.
func Start(t testing.TB, server string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, addr: ports.Addr(ports.Reserve(t)), server: server, conns: make(map[*conn]struct{})}
	p.ToServer = &Link{proxy: p}
	p.ToClient = &Link{proxy: p}
	p.life, p.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		t.Fatalf("proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address to connect to instead of the server's. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Hold holds the bytes of both directions.
func (p *Proxy) Hold() { p.set(hold, p.ToServer, p.ToClient) }

// Drop drops the bytes of both directions.
func (p *Proxy) Drop() { p.set(drop, p.ToServer, p.ToClient) }

// Patient makes a client wait while the server refuses connections, which would otherwise be resets. Use it
// for a server that is about to listen: a client may react differently to a reset than to a refusal, and a
// proxy cannot refuse on behalf of the server.
func (p *Proxy) Patient() { p.patient.Store(true) }

// Cut resets all connections, discards held bytes, and refuses new connections until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.abortLocked()
	}
}

// Heal ends all faults of both directions. Hooks that have not fired stay active.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.set(pass, p.ToServer, p.ToClient) // before it listens, so that no new connection meets the faults
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil && p.life.Err() == nil {
		if err := p.listen(); err != nil {
			p.t.Errorf("proxy: %v", err)
		}
	}
}

// Accepted returns the number of connections since the start.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Close closes all connections, and waits for the goroutines. A hook must not call it.
func (p *Proxy) Close() {
	p.cancel() // from now on, nothing listens again
	p.Cut()
	p.work.Wait()
}

// listen opens the listener. It retries, because a child process that the test starts at this moment may hold
// the old listener open until it executes its program. The caller holds the mutex.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	for begin := time.Now(); errors.Is(err, syscall.EADDRINUSE) && time.Since(begin) < listenLimit; {
		time.Sleep(time.Millisecond)
		l, err = net.Listen("tcp", p.addr)
	}
	if err != nil {
		return err
	}
	p.listener = l
	p.work.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) { // neither cut nor closed
				p.t.Errorf("proxy: %v", err)
			}
			return
		}
		p.mu.Lock()
		if p.listener != l { // cut just now
			p.mu.Unlock()
			reset(client)
			return
		}
		c := newConn(p, client)
		p.conns[c] = struct{}{}
		p.accepted.Add(1)
		p.work.Go(c.run)
		p.mu.Unlock()
	}
}

type mode int

const (
	pass mode = iota
	hold
	drop
)

// A Link is one direction of all connections of a proxy.
type Link struct {
	proxy *Proxy
	bytes atomic.Int64 // forwarded

	// Guarded by the mutex of the proxy.
	mode  mode
	delay time.Duration
	hooks []*hook
}

// Hold holds bytes until Heal, after which they arrive on their connection.
func (l *Link) Hold() { l.proxy.set(hold, l) }

// Drop discards bytes, including those that are held or delayed. The connections stay open.
func (l *Link) Drop() { l.proxy.set(drop, l) }

// Delay delays every byte by d. The throughput stays the same.
func (l *Link) Delay(by time.Duration) { l.proxy.change(func() { l.delay = by }) }

// Heal ends the faults of this direction. It does not undo a Cut.
func (l *Link) Heal() { l.proxy.set(pass, l) }

// Bytes returns the number of bytes that were forwarded.
func (l *Link) Bytes() int64 { return l.bytes.Load() }

// Waiting returns the number of bytes that the proxy has read and not yet forwarded.
func (l *Link) Waiting() int {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	n := 0
	for c := range l.proxy.conns {
		for _, chunk := range c.pipes[l].queue {
			n += len(chunk.data)
		}
	}
	return n
}

func (p *Proxy) set(m mode, links ...*Link) {
	p.change(func() {
		for _, l := range links {
			l.mode = m
			switch m {
			case pass:
				l.delay = 0
			case drop:
				for c := range p.conns {
					c.pipes[l].discard()
				}
			}
		}
	})
}

// change changes faults, and wakes every connection.
func (p *Proxy) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	for c := range p.conns {
		for _, pipe := range c.pipes {
			pipe.wakeUp()
		}
	}
}
