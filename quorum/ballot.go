package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A ballot has the votes of all nodes on one request or renewal.
type ballot struct {
	votes    []vote
	errs     []error       // why a node has not voted for it
	shortest time.Duration // shortest TTL that a node granted
	block    int           // largest block that a node granted, which may be smaller or larger than the one requested
}

func newBallot(nodes int) ballot {
	return ballot{votes: make([]vote, nodes), errs: slices.Repeat([]error{errPending}, nodes), shortest: store.MaxTime}
}

// grant notes the vote of a node for a block of tokens. Its counter is at least floor.
func (b *ballot) grant(i int, token int64, tokens int, floor int64, ttl time.Duration) {
	b.votes[i], b.errs[i] = vote{granted, token, max(floor, token+int64(tokens)-1)}, nil
	b.shortest, b.block = min(b.shortest, ttl), max(b.block, tokens)
}

// deny notes why a node has not voted, or not yet.
func (b *ballot) deny(i int, in state, err error) { b.votes[i].state, b.errs[i] = in, err }

// count returns how many votes are in a state.
func (b *ballot) count(in state) (n int) {
	for _, v := range b.votes {
		if v.state == in {
			n++
		}
	}
	return n
}

// failure returns why too few nodes have voted.
func (b *ballot) failure(s *Store) error {
	invalid := 0
	for _, err := range b.errs {
		if errors.Is(err, store.ErrInvalid) {
			if invalid++; invalid >= s.majority {
				return err
			}
		}
	}
	return s.failures(b.errs, b.count(granted))
}

// raise makes nodes agree on a token: it raises the counters of those that are behind, and waits for
// a majority until the call that began at a time is over. It returns the decision that follows.
func (b *ballot) raise(ctx context.Context, s *Store, begin time.Duration, renewal store.Renewal, d decision) decision {
	ctx, cancel := context.WithTimeout(ctx, begin+s.opts.Timeout-s.now())
	defer cancel()
	renewal.Tokens, renewal.Floor = 0, d.last
	var behind []*node
	for i, v := range b.votes {
		if v.state == granted && v.first <= d.first && v.recorded < d.last {
			b.deny(i, asked, errPending)
			behind = append(behind, s.nodes[i])
		}
	}
	var agreed decision
	gather(ctx, s, behind, func(ctx context.Context, n *node) ([]store.Renewed, error) {
		return n.Renew(ctx, []store.Renewal{renewal})
	}, func(r reply[[]store.Renewed]) bool {
		if r.err == nil && r.v[0].Status == store.Extended {
			b.votes[r.node].state, b.votes[r.node].recorded, b.errs[r.node] = granted, d.last, nil
		} else {
			b.deny(r.node, failed, cmp.Or(r.err, errWithout))
		}
		agreed = decide(b.votes, int(d.last-d.first+1))
		return agreed.verdict == won
	})
	return agreed
}

// A NodesError reports that too few nodes confirmed a call. It has the reasons of the other nodes.
type NodesError struct {
	Confirmed, Needed int
	Nodes             map[string]error // by the name of the node
	all               int
}

func (e *NodesError) Error() string {
	text := fmt.Sprintf("quorum store: %d of %d nodes confirmed, %d are needed", e.Confirmed, e.all, e.Needed)
	sep := ": "
	for _, name := range slices.Sorted(maps.Keys(e.Nodes)) {
		text += fmt.Sprintf("%s%s: %v", sep, name, e.Nodes[name])
		sep = "; "
	}
	return text
}

// Unwrap returns the errors of the nodes.
func (e *NodesError) Unwrap() []error {
	// An error of the store contract from one node is not an answer of the quorum.
	return slices.DeleteFunc(slices.Collect(maps.Values(e.Nodes)), func(err error) bool {
		return isAnswer(err) || errors.Is(err, store.ErrClosed)
	})
}

// tally counts the nodes that have done what they were asked, and those that had nothing to end.
func tally(errs []error) (ok, without int) {
	for _, err := range errs {
		if err == nil {
			ok++
		} else if errors.Is(err, store.ErrNotHeld) {
			without++
		}
	}
	return ok, without
}

// failures combines the errors of the nodes into one. A node that had nothing to end has not failed.
func (s *Store) failures(errs []error, confirmed int) error {
	if s.life.Closing.Err() != nil {
		return s.life.ErrClosed
	}
	e := &NodesError{Confirmed: confirmed, Needed: s.majority, Nodes: make(map[string]error), all: len(s.nodes)}
	for i, n := range s.nodes {
		if errs[i] != nil && !errors.Is(errs[i], store.ErrNotHeld) {
			e.Nodes[n.name] = errs[i]
		}
	}
	return e
}
