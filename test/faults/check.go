package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Violation is a part of a history that an invariant forbids.
type Violation struct {
	Invariant string // such as "S1"
	Name      string // the name of the lock; empty if it concerns all
	At        time.Duration
	Text      string
}

// first returns the first violation as an error.
func first(all []Violation) error {
	if len(all) == 0 {
		return nil
	}
	return errors.New(all[0].Text)
}

// CheckOverlap checks O: no two holders that exclude each other had live leases of one name at
// the same time, except holders that were paused, and the permits held never exceeded the limit.
func (h *History) CheckOverlap() error { return first(h.Overlaps()) }

// Overlaps returns all violations of S1, which is O.
func (h *History) Overlaps() []Violation {
	return h.overlaps("S1", "overlap", func(hold *Hold) time.Duration {
		if hold.Paused {
			return 0
		}
		return hold.Believed
	})
}

// EarlyGrants returns all violations of S4: nobody else is granted a name before the deadline that its holder,
// even a paused or dead one, last knew, unless the lease was ended on purpose.
func (h *History) EarlyGrants() []Violation {
	return h.overlaps("S4", "early grant", func(hold *Hold) time.Duration {
		return min(hold.Deadline, cmp.Or(hold.Unlock, never))
	})
}

// overlaps returns the pairs of holds, each until its end, that exclude each other and overlap.
func (h *History) overlaps(invariant, what string, end func(*Hold) time.Duration) (all []Violation) {
	for name, holds := range h.byName() {
		holds = slices.DeleteFunc(holds, func(hold Hold) bool { return end(&hold) < hold.Got })
		slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Got, b.Got) })
		var live []Hold
		for _, after := range holds {
			live = slices.DeleteFunc(live, func(before Hold) bool { return end(&before) < after.Got })
			permits := after.Permits
			for _, before := range live {
				if after.excludes(&before) {
					all = append(all, Violation{
						Invariant: invariant, Name: name, At: after.Got,
						Text: fmt.Sprintf("%s: %q was held twice: %s had token %d until %v, %s had token %d from %v, %v earlier",
							what, name, before.Who, before.Token, end(&before), after.Who, after.Token, after.Got, end(&before)-after.Got),
					})
				}
				permits += before.Permits
			}
			if permits > after.Limit {
				all = append(all, Violation{Invariant: invariant, Name: name, At: after.Got, Text: fmt.Sprintf("%s: %d of %d permits of %q were held at once when %s got token %d at %v",
					what, permits, after.Limit, name, after.Who, after.Token, after.Got)})
			}
			live = append(live, after)
		}
	}
	return all
}

// ClosedGrants returns all violations of S1 while Once or MinHold keeps a name closed.
func (h *History) ClosedGrants() (all []Violation) {
	for name, holds := range h.byName() {
		var last Hold // the latest end of those with lower tokens
		for _, hold := range holds {
			if hold.Got < last.Closed && hold.Got > last.Freed {
				all = append(all, Violation{Invariant: "S1", Name: name, At: hold.Got, Text: fmt.Sprintf("closed: %q was granted to %s with token %d at %v, though %s, with token %d, had closed it until %v",
					name, hold.Who, hold.Token, hold.Got, last.Who, last.Token, last.Closed)})
			}
			if hold.Freed > 0 && hold.Ended == never && hold.Closed > last.Closed {
				last = hold
			}
		}
	}
	return all
}

// CheckTokens checks T: no two exclusive holders of a name had the same token, and a holder that
// asked after another holder had the lock has the higher token.
func (h *History) CheckTokens() error { return first(h.TokensOutOfOrder()) }

// TokensOutOfOrder returns all violations of S2, which is T.
func (h *History) TokensOutOfOrder() (all []Violation) {
	for name, holds := range h.byName() {
		holds = slices.DeleteFunc(holds, func(hold Hold) bool { return !hold.exclusive() })
		for i := 1; i < len(holds); i++ {
			if holds[i-1].Token == holds[i].Token {
				all = append(all, Violation{Invariant: "S2", Name: name, At: holds[i].Got, Text: fmt.Sprintf("tokens: %q: %s and %s both had token %d", name, holds[i-1].Who, holds[i].Who, holds[i].Token)})
			}
		}
		// Go down the tokens. No holder may have had the lock before the request of one with a lower token.
		first := Hold{Got: never} // of those with higher tokens
		for _, hold := range slices.Backward(holds) {
			if first.Got < hold.Asked {
				all = append(all, Violation{Invariant: "S2", Name: name, At: hold.Got, Text: fmt.Sprintf("tokens: %q: %s had token %d at %v, and %s, which asked at %v, got only %d",
					name, first.Who, first.Token, first.Got, hold.Who, hold.Asked, hold.Token)})
			}
			if hold.Got < first.Got {
				first = hold
			}
		}
	}
	return all
}

// Check checks P, O and T.
func (h *History) Check() error {
	return errors.Join(h.CheckMutex(), h.CheckOverlap(), h.CheckTokens())
}

// A Write is an update that a resource with fencing accepted.
type Write struct {
	Token int64
	Read  int64 // the value that the writer read
	Value int64 // the value that it wrote
}

// CheckLog checks R: among the writes that a counter accepted, in order, none has a lower token
// than the previous one, and each was based on the value of the previous one.
func CheckLog(log []Write) error {
	for i, w := range log {
		last := Write{Value: w.Read} // before the first
		if i > 0 {
			last = log[i-1]
		}
		switch {
		case w.Token < last.Token:
			return fmt.Errorf("resource: write %d: token %d was accepted after %d", i, w.Token, last.Token)
		case w.Read != last.Value:
			return fmt.Errorf("resource: write %d: an update was lost: token %d read %d and wrote %d over %d", i, w.Token, w.Read, w.Value, last.Value)
		case w.Value != w.Read+1:
			return fmt.Errorf("resource: write %d: token %d read %d and wrote %d", i, w.Token, w.Read, w.Value)
		}
	}
	return nil
}

// Leftover returns the stacks, as printed by [runtime.Stack], that contain one of the words.
func Leftover(stacks string, words ...string) (left []string) {
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(stack, word) }) {
			left = append(left, stack)
		}
	}
	return left
}
