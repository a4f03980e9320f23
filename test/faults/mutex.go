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

	// checkLimit is far longer than a check takes, because acquires are in the order of tokens.
	checkLimit = 2 * time.Minute

	never = math.MaxInt64
)

// CheckMutex checks P: the history is possible for a mutex that issues growing tokens.
//
// A call takes effect at some time between its start and its end. An acquire needs a free mutex.
// A release frees the mutex if it is held under the same token. A lease can also expire at any
// time after its Expiry. A call with an unknown outcome takes effect at any time after its start,
// or never, so it makes no history impossible.
func (h *History) CheckMutex() error {
	for name, holds := range h.byName() {
		if slices.ContainsFunc(holds, func(hold Hold) bool { return !hold.exclusive() }) {
			continue // not used as a mutex
		}
		for len(holds) > 0 {
			n := min(segment, len(holds))
			ops := operations(holds[:n])
			if result := porcupine.CheckOperationsTimeout(mutex, ops, checkLimit); result != porcupine.Ok {
				// Find the first hold that is not possible.
				bad := sort.Search(n, func(i int) bool { return !porcupine.CheckOperations(mutex, operations(holds[:i+1])) })
				at := holds[min(bad, n-1)].Got
				return fmt.Errorf("mutex: %q: this history is not possible for a mutex (%s) at %v:\n%s", name, result, at, h.Around(name, at, 5*time.Second))
			}
			holds = holds[n:]
		}
	}
	return nil
}

// An op is a step of the model.
type op struct {
	kind opKind
	rank int // rank of the token in the history, from 1
}

type opKind uint8

const (
	acquire opKind = iota
	release        // confirmed
	expire
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
		}
		if s.holder == o.rank {
			s.holder = 0
		}
		return true, s // expire
	},
	Hash: func(state any) uint64 {
		s := state.(mutexState)
		return uint64(s.holder)<<32 ^ uint64(s.highest)
	},
}

// operations translates holds, in order of tokens, for the model.
func operations(holds []Hold) (ops []porcupine.Operation) {
	add := func(kind opKind, rank int, begin time.Duration, end int64) {
		ops = append(ops, porcupine.Operation{Input: op{kind, rank}, Call: int64(begin), Return: end})
	}
	for i, hold := range holds {
		rank := i + 1
		add(acquire, rank, hold.Asked, int64(hold.Got))
		if hold.Freed > 0 && hold.Freed <= hold.Expiry {
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
