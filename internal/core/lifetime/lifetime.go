// Package lifetime counts the calls and background work of a client, for which Close waits.
package lifetime

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// A Lifetime is the time from New to Close of a client. Enter and Exit are one atomic addition.
type Lifetime struct {
	Closing context.Context // ends when Close begins; calls then stop waiting
	Work    context.Context // ends when Close stops waiting; background work then stops

	beginClose, endWork context.CancelFunc

	n    atomic.Int64 // calls and background work; Shut adds shutBias, which makes it negative
	idle chan struct{}
	once sync.Once
}

const shutBias = math.MinInt64 / 2

// Begin starts a lifetime.
func (l *Lifetime) Begin() {
	l.Closing, l.beginClose = context.WithCancel(context.Background())
	l.Work, l.endWork = context.WithCancel(context.Background())
	l.idle = make(chan struct{})
}

// Enter reports whether a call may proceed. If so, the caller must call Exit.
func (l *Lifetime) Enter() bool {
	if l.n.Add(1) > 0 {
		return true
	}
	l.Exit()
	return false
}

// Exit ends a call that has entered.
func (l *Lifetime) Exit() {
	if l.n.Add(-1) == shutBias {
		l.once.Do(func() { close(l.idle) })
	}
}

// Add counts work that Wait waits for and that ends with Exit. The caller must have entered.
func (l *Lifetime) Add() { l.n.Add(1) }

// Go runs fn on a goroutine of its own, which Wait waits for. The caller must have entered.
func (l *Lifetime) Go(fn func(ctx context.Context)) {
	l.Add()
	go func() {
		defer l.Exit()
		fn(l.Work)
	}()
}

// Shut keeps new calls out and ends Closing. It reports whether it was the first to do so.
func (l *Lifetime) Shut() bool {
	for {
		n := l.n.Load()
		if n < 0 {
			return false
		}
		if l.n.CompareAndSwap(n, n+shutBias+1) {
			l.Exit() // closes idle if there are no calls
			l.beginClose()
			return true
		}
	}
}

// Wait returns when all calls have left, or when Work has ended.
func (l *Lifetime) Wait() {
	select {
	case <-l.idle:
	case <-l.Work.Done():
	}
}

// End ends Work.
func (l *Lifetime) End() { l.endWork() }
