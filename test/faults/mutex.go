package faults

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// segment is the number of holds that are checked together. Every part of a correct history
	// is correct, and the cost of the check grows with the square of the length.
	segment = 300

	// checkLimit is far longer than the check of a segment takes. Acquires can only be in the
	// order of tokens, so there is little to search.
	checkLimit = 2 * time.Minute

	never = math.MaxInt64
)

// CheckMutex checks P: the history is possible for a mutex that issues growing tokens.
//
// A call takes effect at some time between its start and its end. An acquire needs a free mutex.
// A release frees the mutex if it is held under the same token. A lease can also expire at any
// time after its Expiry. A call with an unknown outcome takes effect at any time after its start,
// or never, and its grant can end at any time.
func (h *History) CheckMutex() error {
	h.mu.Lock()
	unknown, refused := slices.Clone(h.unknown), slices.Clone(h.refused)
	h.mu.Unlock()
	for name, holds := range h.byName() {
		if slices.ContainsFunc(holds, func(hold Hold) bool { return !hold.exclusive() }) {
			continue // not used as a mutex
		}
		for len(holds) > 0 {
			n := min(segment, len(holds))
			ops := operations(holds[:n])
			if n == len(holds) { // attempts are checked with the last segment
				ops = append(ops, attempts(name, unknown, refused)...)
			}
			if result := porcupine.CheckOperationsTimeout(mutex, ops, checkLimit); result != porcupine.Ok {
				// Find the first hold that is not possible.
				bad := sort.Search(n, func(i int) bool { return !porcupine.CheckOperations(mutex, operations(holds[:i+1])) })
				return fmt.Errorf("mutex: %q: this history is not possible for a mutex (%s); it ends with:\n%s", name, result, describe(holds[:min(bad+1, n)]))
			}
			holds = holds[n:]
		}
	}
	return nil
}

// An op is a step of the model.
type op struct {
	kind opKind
	rank int // rank of the token in the history, from 1; negative for an unknown grant
}

type opKind uint8

const (
	acquire opKind = iota
	release        // confirmed
	expire
	guess  // an acquire with an unknown outcome
	refuse // the mutex was held
)

// A mutexState is the rank of the holder, and the highest rank so far.
type mutexState struct{ holder, highest int }

var mutex = porcupine.Model{
	Init: func() any { return mutexState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(mutexState), input.(op)
		switch o.kind {
		case acquire:
			// It must be the next token, because all tokens of the history must be used.
			return s.holder == 0 && o.rank == s.highest+1, mutexState{o.rank, o.rank}
		case release:
			return s.holder == o.rank, mutexState{0, s.highest}
		case expire:
			if s.holder == o.rank {
				s.holder = 0
			}
			return true, s
		case guess:
			if s.holder == 0 {
				s.holder = o.rank
			}
			return true, s
		}
		return s.holder != 0, s
	},
	Hash: func(state any) uint64 {
		s := state.(mutexState)
		return uint64(s.holder)<<32 ^ uint64(s.highest)
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// operations translates holds, in order of tokens, for the model.
func operations(holds []Hold) (ops []porcupine.Operation) {
	add := func(kind opKind, rank int, begin time.Duration, end int64) {
		ops = append(ops, porcupine.Operation{Input: op{kind, rank}, Call: int64(begin), Return: end})
	}
	for i, hold := range holds {
		rank := i + 1
		add(acquire, rank, hold.Asked, int64(hold.Got))
		freed := hold.Freed > 0
		if freed && hold.Freed <= hold.Expiry {
			add(release, rank, hold.Unlock, int64(hold.Freed))
			continue
		}
		// The grant may have expired before. A late release then frees nothing.
		if hold.Unlock > 0 {
			add(expire, rank, hold.Unlock, never)
		}
		add(expire, rank, hold.Expiry, never)
	}
	return ops
}

// attempts translates calls without a lease for the model. Calls with an unknown outcome matter
// only because they can explain refusals.
func attempts(name string, unknown, refused []Attempt) (ops []porcupine.Operation) {
	for _, a := range refused {
		if a.Name == name {
			ops = append(ops, porcupine.Operation{Input: op{kind: refuse}, Call: int64(a.Asked), Return: int64(a.Ended)})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	for i, a := range unknown {
		if a.Name == name {
			ops = append(ops,
				porcupine.Operation{Input: op{guess, -1 - i}, Call: int64(a.Asked), Return: never},
				porcupine.Operation{Input: op{expire, -1 - i}, Call: int64(a.Asked) + 1, Return: never})
		}
	}
	return ops
}

// describe returns the end of a history, for the reader of a failure.
func describe(holds []Hold) (text string) {
	for _, hold := range holds[max(0, len(holds)-5):] {
		text += fmt.Sprintf("  %s token %d: asked %v, got %v, believed until %v, unlocked %v to %v, may expire %v\n",
			hold.Who, hold.Token, hold.Asked, hold.Got, hold.Believed, hold.Unlock, hold.Freed, hold.Expiry)
	}
	return text
}
