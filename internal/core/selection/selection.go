// Package selection has the rules by which the command and the inspector choose and sort locks.
package selection

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Waiting is the state of a lock that somebody waits for. The other states are those of holders.
const Waiting = "waiting"

// States are the states that a list can be limited to.
var States = []string{store.Held.String(), store.Done.String(), Waiting}

// An Order is how a list is sorted. Locks with equal keys are sorted by name.
type Order struct {
	Word, Text string
	key        func(*store.Lock) time.Duration
}

// Orders are the orders of a list. The first one is the default.
var Orders = []Order{
	{"name", "name", func(*store.Lock) time.Duration { return 0 }},
	{"age", "longest held", func(l *store.Lock) time.Duration {
		return least(l, func(h store.Holder) time.Duration { return -h.Age })
	}},
	{Waiting, "most waiting", func(l *store.Lock) time.Duration { return -time.Duration(len(l.Waiters)) }},
	{"left", "least left", func(l *store.Lock) time.Duration {
		return least(l, func(h store.Holder) time.Duration { return h.Left })
	}},
}

// least returns the lowest value of the holders of a lock. A lock without holders comes last.
func least(l *store.Lock, of func(store.Holder) time.Duration) time.Duration {
	lowest := time.Duration(math.MaxInt64)
	for _, h := range l.Holders {
		lowest = min(lowest, of(h))
	}
	return lowest
}

// Words returns the words of all orders.
func Words() (words []string) {
	for _, o := range Orders {
		words = append(words, o.Word)
	}
	return words
}

// A Selection says which locks of a list are shown, and in which order.
type Selection struct {
	States []string // if not empty, only locks in one of these states
	Text   string   // only locks whose name, or a holder or waiter with its meta, contains it
	Order  string   // the word of an order; empty for the default
}

// Check returns an error if a state or the order is unknown.
func (s *Selection) Check() error {
	for _, state := range s.States {
		if !slices.Contains(States, state) {
			return fmt.Errorf("state %q: want one of %s", state, strings.Join(States, ", "))
		}
	}
	if s.Order != "" && !slices.Contains(Words(), s.Order) {
		return fmt.Errorf("order %q: want one of %s", s.Order, strings.Join(Words(), ", "))
	}
	return nil
}

// Containing returns the locks of a list that contain the text. It does not change the list.
func (s *Selection) Containing(list []store.Lock) []store.Lock {
	if s.Text == "" {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(l store.Lock) bool { return !contains(&l, s.Text) })
}

func contains(l *store.Lock, text string) bool {
	return strings.Contains(l.Name, text) ||
		slices.ContainsFunc(l.Holders, func(h store.Holder) bool {
			return strings.Contains(h.Owner, text) || strings.Contains(h.Meta, text)
		}) ||
		slices.ContainsFunc(l.Waiters, func(w store.Waiter) bool {
			return strings.Contains(w.Owner, text) || strings.Contains(w.Meta, text)
		})
}

// InStates returns a sorted list of the locks of a list in the states of the selection.
func (s *Selection) InStates(list []store.Lock) []store.Lock {
	list = slices.Clone(list)
	if len(s.States) > 0 {
		list = slices.DeleteFunc(list, func(l store.Lock) bool {
			return !slices.ContainsFunc(s.States, func(state string) bool { return Is(&l, state) })
		})
	}
	o := Orders[max(0, slices.Index(Words(), s.Order))]
	slices.SortStableFunc(list, func(a, b store.Lock) int {
		return cmp.Or(cmp.Compare(o.key(&a), o.key(&b)), strings.Compare(a.Name, b.Name))
	})
	return list
}

// Is reports whether a lock has a holder in that state, or a waiter if the state is Waiting.
func Is(l *store.Lock, state string) bool {
	if state == Waiting {
		return len(l.Waiters) > 0
	}
	return slices.ContainsFunc(l.Holders, func(h store.Holder) bool { return h.State.String() == state })
}

// Count returns the number of locks of a list in a state.
func Count(list []store.Lock, state string) (n int) {
	for i := range list {
		if Is(&list[i], state) {
			n++
		}
	}
	return n
}
