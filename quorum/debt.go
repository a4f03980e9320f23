package quorum

import "time"

// maxDebts bounds what is remembered of a node that does not answer. What is forgotten ends with
// its TTL.
const maxDebts = 1024

// A debt is an identity that a node may still have a vote or a place for, because a message that
// ends it was not answered. It is sent again when the node answers.
type debt struct {
	key   sessionKey
	until time.Duration // when its TTL is over
}

// ended notes how the node answered a message that ends its vote for an identity. If it did not, the
// message may still arrive, and with owed a Leave is sent later: its votes for that identity do not
// count any more, see the rule Order.
func (n *node) ended(se *session, err error, owed bool) {
	if err == nil || isAnswer(err) {
		return
	}
	se.taint(n.index, n.quorum.now())
	if owed {
		n.owe(se.key)
	}
}

// owe notes a debt.
func (n *node) owe(key sessionKey) {
	s := n.quorum
	until := s.now() + ttlAtNodes(s.maxTTL.load())
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts) >= maxDebts {
		n.debts = n.debts[1:]
	}
	n.debts = append(n.debts, debt{key, until})
	n.owes.Store(true)
}

// settle pays all debts, in the background.
func (n *node) settle() {
	if !n.owes.CompareAndSwap(true, false) {
		return
	}
	n.mu.Lock()
	debts := n.debts
	n.debts = nil
	n.mu.Unlock()
	s := n.quorum
	for _, d := range debts {
		if s.now() < d.until {
			// Behind a request of the same identity that the node has not answered yet.
			se := s.open(d.key.name, d.key.id)
			s.leaveNode(se, n.index)
			s.shut(se)
		}
	}
}
