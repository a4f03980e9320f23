package quorum

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file contains the decisions of the algorithm as functions of the nodes' answers. They do
// no input or output and use no clock, so the model checker can run the same code.

// majority returns how many of n nodes are a majority: the rule Majority.
func majority(n int) int { return n/2 + 1 }

// fits reports whether each majority of a nodes has a node in common with each majority of b nodes, if the
// two lists have that many nodes in common.
func fits(a, b, common int) bool { return majority(a)+majority(b) > a+b-common }

// state is what a client knows about its request at one node.
type state uint8

const (
	asked     state = iota // no reply yet
	granted                // it has the grant
	uncounted              // the node has the grant, but it does not count: see Young
	refused                // another identity has the name at the node
	failed                 // no usable reply
)

// A vote is the answer of one node.
type vote struct {
	state    state
	first    int64 // first token of the newest block that it granted
	recorded int64 // its counter is at least this
}

// A verdict is the conclusion from the votes so far.
type verdict uint8

const (
	open     verdict = iota // further replies may decide
	won                     // a majority granted, and recorded the block first..last
	conflict                // a majority granted, but no common block is recorded yet
	lost                    // no majority, because other identities have the name
	broken                  // no majority, because too few nodes answered
)

// A decision is a verdict with the tokens that belong to it. With conflict, the counters of the
// nodes whose first token is not above first have to be raised to last.
type decision struct {
	verdict     verdict
	first, last int64
}

// decide applies the rules Majority, Above and Recorded to the votes for a block of up to n tokens.
func decide(votes []vote, n int) decision {
	most := majority(len(votes))
	var firsts [maxNodes]int64
	counted, pending, answered := 0, 0, 0
	for _, v := range votes {
		switch v.state {
		case granted:
			firsts[counted] = v.first
			counted++
			answered++
		case asked:
			pending++
		case refused:
			answered++
		}
	}
	switch {
	case counted >= most:
	case counted+pending >= most:
		return decision{verdict: open}
	case answered >= most:
		return decision{verdict: lost}
	case answered+pending >= most:
		return decision{verdict: open}
	default:
		return decision{verdict: broken}
	}
	slices.Sort(firsts[:counted])
	first := firsts[most-1] // the rule Above
	var ends [maxNodes]int64
	recorded := 0
	for _, v := range votes {
		if v.state == granted && v.first <= first && v.recorded >= first {
			ends[recorded] = v.recorded
			recorded++
		}
	}
	last := first + int64(n) - 1
	if recorded < most { // the rule Recorded
		return decision{conflict, first, last}
	}
	slices.Sort(ends[:recorded])
	return decision{won, first, min(last, ends[recorded-most])}
}

// sameBlock applies to a request that is repeated while its lease is held. It reports whether the request has the
// block of the lease, which ends with last. That is so if a majority has grants that are not newer than that block:
// had there been another lease since, one of these nodes would have granted it, and its next token would be higher.
func sameBlock(votes []vote, last int64) bool {
	old := 0
	for _, v := range votes {
		if v.state == granted && v.first <= last {
			old++
		}
	}
	return old >= majority(len(votes))
}

// renewed applies the rule Renewal. It returns the outcome of a renewal, or Unknown while replies
// are missing. Extended and gone count only nodes that gave the lease their vote.
func renewed(nodes, extended, gone int) store.Status {
	switch {
	case extended >= majority(nodes):
		return store.Extended
	case gone > nodes-majority(nodes):
		return store.Gone
	}
	return store.Unknown
}

// isValid applies the rule Over. It reports whether a lease may be renewed, and may get further votes.
// A lease that is over may not, because another lease may have been granted since.
func isValid(now, until time.Duration) bool { return now < until }

// isOld applies the rule Young. It reports whether the grants of a node count when its server has been up for
// that long.
func isOld(uptime, delay time.Duration) bool { return uptime >= delay }

// drift is the constant part of the difference that is allowed between clocks. The other part is
// a hundredth of the TTL.
const drift = 2 * time.Millisecond

// ttlAtNodes returns the TTL to request from nodes, so that the lease is valid for ttl although
// clocks drift. It is in whole milliseconds, because some nodes count in milliseconds.
func ttlAtNodes(ttl time.Duration) time.Duration {
	return (ttl + ttl/100 + drift + time.Millisecond).Truncate(time.Millisecond)
}

// validity returns how long a lease is valid if its nodes keep it for ttl. It is the inverse of ttlAtNodes.
func validity(ttl time.Duration) time.Duration {
	return (ttl - drift) - (ttl-drift)/101
}

// validUntil applies the rule Validity. It returns when a lease ends whose nodes keep it for ttl. The
// first message was sent at begin, and the last reply that was needed arrived at the given time.
func validUntil(begin, _ time.Duration, ttl time.Duration) time.Duration {
	return begin + validity(ttl)
}

// countsVote applies the rules Voted and Order. It reports whether a node counts that has answered
// that it has the grant. Ending means that a message that ends the vote is about to be sent or is in
// flight. Barred means that such a message was not answered, and may be executed at any time.
func countsVote(granted, ending, barred bool) bool { return granted && !ending && !barred }
