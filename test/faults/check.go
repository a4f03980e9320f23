package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CheckOverlap checks O: no two holders that exclude each other had live leases of one name at
// the same time, except holders that were paused, and the permits held never exceeded the limit.
func (h *History) CheckOverlap() error {
	for name, holds := range h.byName() {
		holds = slices.DeleteFunc(holds, func(hold Hold) bool { return hold.Paused || hold.Believed < hold.Got })
		slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Got, b.Got) })
		var live []Hold
		for _, after := range holds {
			live = slices.DeleteFunc(live, func(before Hold) bool { return before.Believed < after.Got })
			permits := after.Permits
			for _, before := range live {
				if after.excludes(&before) {
					return fmt.Errorf("overlap: %q was held twice: %s believed in token %d until %v, %s had token %d from %v, %v earlier",
						name, before.Who, before.Token, before.Believed, after.Who, after.Token, after.Got, before.Believed-after.Got)
				}
				permits += before.Permits
			}
			if permits > after.Limit {
				return fmt.Errorf("overlap: %d of %d permits of %q were held at once when %s got token %d at %v",
					permits, after.Limit, name, after.Who, after.Token, after.Got)
			}
			live = append(live, after)
		}
	}
	return nil
}

// CheckTokens checks T: no two exclusive holders of a name had the same token, and a holder that
// asked after another holder had the lock has the higher token.
func (h *History) CheckTokens() error {
	for name, holds := range h.byName() {
		holds = slices.DeleteFunc(holds, func(hold Hold) bool { return !hold.exclusive() })
		for i := 1; i < len(holds); i++ {
			if holds[i-1].Token == holds[i].Token {
				return fmt.Errorf("tokens: %q: %s and %s both had token %d", name, holds[i-1].Who, holds[i].Who, holds[i].Token)
			}
		}
		// Go through the holds in order of tokens. No holder may have had the lock before the
		// request of a holder with a lower token.
		first := Hold{Got: time.Duration(1<<63 - 1)} // of those with higher tokens
		for _, hold := range slices.Backward(holds) {
			if first.Got < hold.Asked {
				return fmt.Errorf("tokens: %q: %s had token %d at %v, and %s, which asked at %v, got only %d",
					name, first.Who, first.Token, first.Got, hold.Who, hold.Asked, hold.Token)
			}
			if hold.Got < first.Got {
				first = hold
			}
		}
	}
	return nil
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
		for _, word := range words {
			if strings.Contains(stack, word) {
				left = append(left, stack)
				break
			}
		}
	}
	return left
}
