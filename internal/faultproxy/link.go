package faultproxy

import (
	"slices"
	"sync/atomic"
	"time"
)

// What happens to bytes that arrive.
type mode int

const (
	pass mode = iota
	hold
	drop
)

// A Link is one direction of all connections of a proxy.
type Link struct {
	proxy *Proxy
	bytes atomic.Int64 // passed on
	lost  atomic.Int64 // dropped

	// These need the mutex of the proxy.
	mode   mode
	delay  time.Duration
	counts []*count
	hooks  []*hook
}

// Hold keeps bytes until Heal, then they arrive on their connection. When it holds a few
// megabytes of a connection, the proxy stops reading there.
func (l *Link) Hold() { l.proxy.set(hold, l) }

// Drop swallows bytes, those that are held or delayed too. The connections stay open.
func (l *Link) Drop() { l.proxy.set(drop, l) }

// Delay lets every byte arrive so much later; the throughput stays the same.
func (l *Link) Delay(by time.Duration) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.delay = by
	l.proxy.wakeAll()
}

// Heal ends the faults of this direction. It does not undo a Cut.
func (l *Link) Heal() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.mode, l.delay = pass, 0
	l.proxy.wakeAll()
}

// Bytes is the number of bytes that were passed on.
func (l *Link) Bytes() int64 { return l.bytes.Load() }

// Dropped is the number of bytes that were swallowed: by Drop, or since nobody was left to
// receive them.
func (l *Link) Dropped() int64 { return l.lost.Load() }

// Waiting is the number of bytes that the proxy has read and not yet passed on.
func (l *Link) Waiting() int {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	n := 0
	for c := range l.proxy.conns {
		n += c.pipe(l).size
	}
	return n
}

// set gives links a new mode.
func (p *Proxy) set(m mode, links ...*Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range links {
		l.mode = m
		if m != drop {
			continue
		}
		for c := range p.conns {
			c.pipe(l).discard()
		}
	}
	p.wakeAll()
}

// count is an After that has not happened.
type count struct {
	left int
	act  func()
}

// After calls act once, as soon as n more bytes were passed on in this direction, counted
// over all connections. The connection that brought the last of them passes no further byte
// on before act returns: After(n, proxy.Cut) ends a message in the middle.
func (l *Link) After(n int, act func()) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.counts = append(l.counts, &count{n, act})
}

// take counts up to n bytes that are about to be passed on, and returns how many may go
// before act is to be called. It needs the mutex.
func (l *Link) take(n int) (allowed int, act func()) {
	next := -1
	for i, c := range l.counts {
		if c.left <= n {
			n, next = c.left, i
		}
	}
	for _, c := range l.counts {
		c.left -= n
	}
	if next >= 0 {
		act = l.counts[next].act
		l.counts = slices.Delete(l.counts, next, next+1)
	}
	return n, act
}
