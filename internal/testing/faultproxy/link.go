package faultproxy

import (
	"sync/atomic"
	"time"
)

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
func (l *Link) Delay(by time.Duration) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.delay = by
	l.proxy.wakeAll()
}

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
	p.mu.Lock()
	defer p.mu.Unlock()
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
	p.wakeAll()
}
