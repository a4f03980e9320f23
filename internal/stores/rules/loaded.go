package rules

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Loaded has all claims of a name in memory. It has the methods of [Name], except for Wake, Reserve
// and Raise.
type Loaded struct {
	Holders []*Claim // in the order in which they were granted
	Queue   []*Claim // in order of arrival
}

// Empty reports whether there are no claims.
func (l *Loaded) Empty() bool { return len(l.Holders) == 0 && len(l.Queue) == 0 }

func find(claims []*Claim, id store.ID) *Claim {
	for _, c := range claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (l *Loaded) Holder(id store.ID) *Claim { return find(l.Holders, id) }
func (l *Loaded) Waiter(id store.ID) *Claim { return find(l.Queue, id) }

// Sum also works if a holder whose row was changed by another program is exclusive beside others: it
// excludes everybody.
func (l *Loaded) Sum(store.Mode) Sum {
	if len(l.Holders) == 0 {
		return Sum{}
	}
	sum := Sum{Mode: l.Holders[0].Mode, Limit: l.Holders[0].Limit, Until: math.MaxInt64}
	for _, h := range l.Holders {
		sum.Weight += h.Weight
		sum.Until = min(sum.Until, h.Until)
		if h.Mode == store.Exclusive {
			sum.Mode = store.Exclusive
		}
	}
	return sum
}

func (l *Loaded) Kept() bool {
	return slices.ContainsFunc(l.Holders, func(h *Claim) bool { return h.State != store.Held })
}

func (l *Loaded) Oldest(n int) []*Claim { return Oldest(slices.Clone(l.Holders), n) }

// Oldest sorts holders by age and returns at most n of them.
func Oldest(holders []*Claim, n int) []*Claim {
	slices.SortStableFunc(holders, func(a, b *Claim) int { return cmp.Compare(a.Since, b.Since) })
	return holders[:min(len(holders), n)]
}

func (l *Loaded) Put(h *Claim) {
	if !slices.Contains(l.Holders, h) {
		l.Holders = append(l.Holders, h)
	}
}

func (l *Loaded) Remove(h *Claim)  { l.Holders = without(l.Holders, h) }
func (l *Loaded) Dequeue(w *Claim) { l.Queue = without(l.Queue, w) }

func without(claims []*Claim, c *Claim) []*Claim {
	i := slices.Index(claims, c)
	return slices.Delete(claims, i, i+1)
}

func (l *Loaded) Waiters() int  { return len(l.Queue) }
func (l *Loaded) All() []*Claim { return l.Queue }

func (l *Loaded) First() *Claim {
	if len(l.Queue) == 0 {
		return nil
	}
	return l.Queue[0]
}

func (l *Loaded) NotExclusive() *Claim {
	for _, w := range l.Queue {
		if w.Mode != store.Exclusive {
			return w
		}
	}
	return nil
}

func (l *Loaded) Ahead(of *Claim) (n int, due int64) {
	due = math.MaxInt64
	for _, w := range l.Queue {
		if w == of {
			break
		}
		n++
		due = min(due, w.Until)
	}
	return n, due
}

func (l *Loaded) Enqueue(w *Claim) {
	if w.Seq > 0 {
		return
	}
	w.Seq = 1
	if n := len(l.Queue); n > 0 {
		w.Seq = l.Queue[n-1].Seq + 1
	}
	l.Queue = append(l.Queue, w)
}

// Lock describes the name.
func (l *Loaded) Lock(name string, now int64, unit time.Duration) store.Lock {
	lock := store.Lock{Name: name}
	for _, h := range l.Oldest(len(l.Holders)) {
		lock.Holders = append(lock.Holders, h.Holder(now, unit))
		lock.Limit = max(lock.Limit, h.Limit)
	}
	for _, w := range l.Queue {
		lock.Waiters = append(lock.Waiters, w.Waiter(now, unit))
		lock.Limit = max(lock.Limit, w.Limit)
	}
	return lock
}
