package quorum

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file contains the decisions of the algorithm as functions of the nodes' answers. They do
// no input or output and use no clock, so the model checker can run the same code.

// rules is a set of rules of the algorithm that are switched off, in tests only.
type rules uint16

const (
	noMajority      rules = 1 << iota // half of the nodes is enough
	noAbove                           // the token may be below the first token of a counted node
	noRecorded                        // a majority need not have recorded the token
	noYoung                           // nodes count right after a restart
	noValidity                        // the lease is valid for its TTL from the last reply
	noOrder                           // messages of one identity may overtake each other
	noRenewMajority                   // one node that has extended the grant is enough
	noRepair                          // repair leases that are over
	noVoted                           // renewals count at nodes that have not voted for the lease
	noGone                            // one node without its vote is enough to give back others
	noSpent                           // votes that were passed on count from the request of the waiter
	noBefore                          // votes are passed on to waiters that asked after the holder was granted
	noForget                          // a holder uses its votes after it has tried to pass them on
)

func (r rules) off(rule rules) bool { return r&rule != 0 }

// majority returns how many of n nodes are a majority.
func (r rules) majority(n int) int {
	if r.off(noMajority) {
		return max(1, n/2)
	}
	return n/2 + 1
}

// state is what a client knows about its request at one node.
type state uint8

const (
	idle      state = iota // not asked yet
	asked                  // no reply yet
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
	won                     // a majority granted and recorded the block first..last
	conflict                // a majority granted, but no common block is recorded yet
	lost                    // no majority, because other identities have the name
	broken                  // no majority, because too few nodes answered
)

// A decision is a verdict with the tokens that belong to it. With conflict, first is the
// lowest token that can be agreed on, and last the highest that any node in question recorded.
type decision struct {
	verdict     verdict
	first, last int64
}

// decide applies the rules Majority, Above and Recorded to the votes for a block of up to n
// tokens.
func (r rules) decide(votes []vote, n int) decision {
	majority := r.majority(len(votes))
	var firsts [maxNodes]int64
	counted, pending, answered := 0, 0, 0
	for _, v := range votes {
		switch v.state {
		case granted:
			firsts[counted] = v.first
			counted++
			answered++
		case idle, asked:
			pending++
		case refused:
			answered++
		}
	}
	switch {
	case counted >= majority:
	case counted+pending >= majority:
		return decision{verdict: open}
	case answered >= majority:
		return decision{verdict: lost}
	case answered+pending >= majority:
		return decision{verdict: open}
	default:
		return decision{verdict: broken}
	}
	slices.Sort(firsts[:counted])
	first := firsts[majority-1]
	if r.off(noAbove) {
		first = firsts[0]
	}
	var ends [maxNodes]int64
	recorded, highest := 0, int64(0)
	for _, v := range votes {
		if v.state != granted || v.first > first && !r.off(noAbove) {
			continue
		}
		highest = max(highest, v.recorded)
		if v.recorded >= first {
			ends[recorded] = v.recorded
			recorded++
		}
	}
	if recorded < majority && !r.off(noRecorded) {
		return decision{conflict, first, highest}
	}
	last := first + int64(n) - 1
	if recorded >= majority {
		slices.Sort(ends[:recorded])
		last = min(last, ends[recorded-majority])
	}
	return decision{won, first, last}
}

// decideBaton is like decide, for the votes of all nodes but the bell. Each of them must have
// granted, because the lease must have the votes of all nodes to be passed on.
func (r rules) decideBaton(votes []vote, bell int) decision {
	for i, v := range votes {
		if i != bell && v.state != granted {
			return decision{verdict: lost}
		}
	}
	return r.decide(votes, passTokens)
}

// repeated applies to a request that is repeated while its lease is held. It reports whether the
// request has the block of the lease, which ends with last. That is so if a majority has grants
// that are not newer than that block: had there been another lease since, one of these nodes
// would have granted it, and its next token would be higher.
func (r rules) repeated(votes []vote, last int64) bool {
	old := 0
	for _, v := range votes {
		if v.state == granted && v.first <= last {
			old++
		}
	}
	return old >= r.majority(len(votes))
}

// renewed applies the rule RenewMajority. It returns the outcome of a renewal, or Unknown while
// replies are missing. Gone is the number of nodes that had a vote and have lost it.
func (r rules) renewed(nodes, extended, gone int) store.Status {
	majority := r.majority(nodes)
	switch {
	case extended >= majority, r.off(noRenewMajority) && extended > 0:
		return store.Extended
	case gone > nodes-majority:
		return store.Gone
	}
	return store.Unknown
}

// extends applies the rule Voted. It reports whether a node that extended a grant counts. A node
// that has not answered the request for its vote may have the vote of an earlier attempt of the
// same identity, which is about to be given back.
func (r rules) extends(voted, tainted bool) bool {
	return (voted || r.off(noVoted)) && (!tainted || r.off(noOrder))
}

// gone applies the rule Gone. It reports whether another client has ended a lease that is valid, if
// so many nodes have lost their votes. Fewer nodes may have restarted, and the lease needs the votes
// of the others.
func (r rules) gone(nodes, gone int) bool {
	return r.renewed(nodes, 0, gone) == store.Gone || r.off(noGone) && gone > 0
}

// mayRepair applies the rule Repair. It reports whether nodes without the grant may get it after
// a renewal with this outcome. While the lease is valid, a further vote excludes only requests
// that are excluded anyway.
func (r rules) mayRepair(status store.Status, valid bool) bool {
	return status != store.Gone && valid || r.off(noRepair)
}

// counts applies the rule Young. It reports whether the grants of a node count.
func (r rules) counts(uptime, delay time.Duration) bool {
	return uptime >= delay || r.off(noYoung)
}

// passedSince applies the rule Passed. It returns when the first request for votes was sent, or an
// earlier time, if they were passed on to a waiter that sent its last request at asked. Spent is the
// age of the votes when they were passed on, which is later than asked.
func (r rules) passedSince(asked, spent time.Duration) time.Duration {
	if r.off(noSpent) {
		return asked
	}
	return asked - spent
}

// ttlAtNodes returns the TTL to request from nodes, so that the lease is valid for ttl although
// clocks drift. It is in whole milliseconds, because some nodes count in milliseconds.
func ttlAtNodes(ttl time.Duration) time.Duration {
	return (ttl + ttl/100 + drift + time.Millisecond).Truncate(time.Millisecond)
}

// drift is the constant part of the difference that is allowed between clocks. The other part is
// a hundredth of the TTL.
const drift = 2 * time.Millisecond

// validity applies the rule Validity. It returns how long a lease is valid after its first
// message was sent, if its nodes keep it for ttl. It is the inverse of ttlAtNodes. Elapsed is the
// time since the first message.
func (r rules) validity(ttl, elapsed time.Duration) time.Duration {
	valid := (ttl - drift) - (ttl-drift)/101
	if r.off(noValidity) {
		valid += elapsed
	}
	return valid
}
