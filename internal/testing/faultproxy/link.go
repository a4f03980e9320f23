package faultproxy

import (
	"slices"
	"sync/atomic"
	"time"
)

// Modes of a link.
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
	lost  atomic.Int64 // dropped

	// Guarded by the mutex of the proxy.
	mode   mode
	delay  time.Duration
	counts []*count
	hooks  []*hook
}

// Hold holds bytes until Heal, after which they arrive on their connection. When the proxy holds
// a few megabytes of a connection, it stops reading from it.
func (l *Link) Hold() { l.proxy.set(hold, l) }

// Drop discards bytes, including those that are held or delayed. The connections stay open.
func (l *Link) Drop() { l.proxy.set(drop, l) }

// Delay delays every byte by d. The throughput stays the same.
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

// Bytes returns the number of bytes that were forwarded.
func (l *Link) Bytes() int64 { return l.bytes.Load() }

// Dropped returns the number of bytes that were discarded, by Drop or because the receiver was
// gone.
func (l *Link) Dropped() int64 { return l.lost.Load() }

// Waiting returns the number of bytes that the proxy has read and not yet forwarded.
func (l *Link) Waiting() int {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	n := 0
	for c := range l.proxy.conns {
		n += c.pipe(l).size
	}
	return n
}

// set changes the mode of links.
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

// A count is a call of After that has not fired yet.
type count struct {
	left int
	act  func()
}

// After calls act once, as soon as n more bytes were forwarded in this direction, summed over
// all connections. The connection with the last of them forwards no further byte before act
// returns, so After(n, proxy.Cut) cuts a message in the middle.
func (l *Link) After(n int, act func()) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.counts = append(l.counts, &count{n, act})
}

// take counts up to n bytes that are about to be forwarded, and returns how many may be
// forwarded before act must be called. The caller holds the mutex.
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
