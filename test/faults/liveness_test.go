package faults

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const s = time.Second

// busy adds a grant every 10 ms between two times.
func busy(h *History, from, to time.Duration) {
	for at := from; at < to; at += 10 * time.Millisecond {
		h.Add(Hold{Who: "x", Name: "busy", Token: int64(at), Asked: at, Got: at, Unlock: at + 1, Freed: at + 2})
	}
}

// TestEachInvariantIsChecked shows, for each invariant of a hunt, a history that violates it and is
// found, beside similar ones that are correct.
func TestEachInvariantIsChecked(t *testing.T) {
	holder := Hold{Who: "p1/a", Name: "n", ID: "1", Token: 1, TTL: 6 * s, Asked: 1 * s, Got: 2 * s, Believed: 4 * s, Deadline: 8 * s}
	changed := func(hold Hold, change func(*Hold)) Hold {
		change(&hold)
		return hold
	}
	next := Hold{Who: "p2/b", Name: "n", ID: "2", Token: 2, TTL: 6 * s, Asked: 1 * s, Got: 3 * s, Believed: 3 * s, Deadline: 9 * s}
	early := changed(next, func(hold *Hold) { hold.Got, hold.Believed = 7*s, 7*s }) // after Believed, before Deadline
	lost := changed(holder, func(hold *Hold) { hold.Lost = 8 * s })
	waited := changed(next, func(hold *Hold) { hold.Got, hold.Believed, hold.Deadline = 20*s, 21*s, 26*s })
	freed := changed(holder, func(hold *Hold) { hold.Unlock, hold.Freed = 5*s, 5*s })
	closed := changed(freed, func(hold *Hold) { hold.Closed = 12 * s })
	lower := changed(next, func(hold *Hold) { hold.Token, hold.Asked, hold.Got = 0, 9*s, 10*s })
	silent := changed(holder, func(hold *Hold) { hold.Deadline = 0 })
	permits := func(who string, token int64, n int) Hold {
		return Hold{Who: who, Name: "n", Token: token, Permits: n, Limit: 3, Asked: 1 * s, Got: 2 * s, Believed: 4 * s, Deadline: 8 * s}
	}
	for _, test := range []struct {
		name  string
		want  string // the invariant that is violated, if any
		holds []Hold
		more  func(h *History)
	}{
		{"two holders at once", "S1", []Hold{holder, next}, nil},
		{"one after the other", "", []Hold{freed, changed(next, func(hold *Hold) { hold.Got, hold.Believed = 6*s, 7*s })}, nil},
		{"two readers", "", []Hold{changed(holder, func(hold *Hold) { hold.Shared = true }), changed(next, func(hold *Hold) { hold.Shared = true })}, nil},
		{"granted when the first was last valid", "S1", []Hold{silent, changed(next, func(hold *Hold) { hold.Got, hold.Believed = 4*s, 5*s })}, nil},
		{"granted after the first was last valid", "", []Hold{silent, changed(next, func(hold *Hold) { hold.Got, hold.Believed = 4*s+1, 5*s })}, nil},
		{"a reader beside a writer", "S1", []Hold{changed(holder, func(hold *Hold) { hold.Shared = true }), next}, nil},
		{"too many permits", "S1", []Hold{permits("a", 1, 2), permits("b", 2, 2)}, nil},
		{"all permits", "", []Hold{permits("a", 1, 2), permits("b", 2, 1)}, nil},
		{"the first holder was killed", "", []Hold{holder, next}, func(h *History) { h.End("p1", 2*s+1) }},
		{"the first client was closed", "", []Hold{holder, next}, func(h *History) { h.End("p1/a", 2*s+1) }},
		{"the first grant was broken", "", []Hold{holder, next}, func(h *History) { h.End(Grant("n", "1"), 2*s+1) }},
		{"another grant was broken", "S1", []Hold{holder, next}, func(h *History) { h.End(Grant("n", "3"), 2*s+1) }},
		{"a closed name is granted", "S1", []Hold{closed, changed(next, func(hold *Hold) { hold.Got, hold.Believed = 11*s, 12*s })}, nil},
		{"a name is granted when it opens", "", []Hold{closed, changed(next, func(hold *Hold) { hold.Got, hold.Believed = 13*s, 14*s })}, nil},
		{"a later token is lower", "S2", []Hold{changed(freed, func(hold *Hold) { hold.Deadline = 5 * s }), lower}, nil},
		{"a token is issued twice", "S2", []Hold{freed, changed(lower, func(hold *Hold) { hold.Token = 1 })}, nil},
		{"granted before the deadline of a silent holder", "S4", []Hold{holder, early}, nil},
		{"granted after the deadline of a silent holder", "", []Hold{changed(holder, func(hold *Hold) { hold.Deadline = 6 * s }), early}, nil},
		{"a documented double grant", "", []Hold{holder, next}, func(h *History) {
			h.AddFault(Fault{Kind: "data lost", Begin: 2 * s, End: 2 * s, Weak: "data is lost", After: 6 * s})
		}},
		{"a wait for a free name", "L2", []Hold{freed, waited}, nil},
		{"a wait for a name that was held", "", []Hold{changed(freed, func(hold *Hold) { hold.Freed = 19 * s }), waited}, nil},
		{"a wait during a fault", "", []Hold{freed, waited}, func(h *History) { h.AddFault(Fault{Begin: 6 * s, End: 19 * s}) }},
		{"a wait in vain for a free name", "L2", []Hold{freed}, func(h *History) { h.AddUnknown(Attempt{Name: "n", Asked: 5 * s, Ended: 20 * s}) }},
		{"a lease lost without a fault", "L3", []Hold{lost}, nil},
		{"a lease lost to a short fault", "L3", []Hold{lost}, func(h *History) { h.AddFault(Fault{Begin: 5 * s, End: 6 * s}) }},
		{"a lease lost to a long fault", "", []Hold{lost}, func(h *History) { h.AddFault(Fault{Begin: 4 * s, End: 7 * s}) }},
		{"a lease lost to its process", "", []Hold{lost}, func(h *History) { h.AddFault(Fault{Process: "p1", Begin: 4 * s, End: 7 * s}) }},
		{"a lease lost to another process", "L4", []Hold{lost}, func(h *History) { h.AddFault(Fault{Process: "p2", Begin: 4 * s, End: 7 * s}) }},
		{"a lease lost to another name", "L4", []Hold{lost}, func(h *History) { h.AddFault(Fault{Name: "m", Begin: 4 * s, End: 7 * s}) }},
		{"a lease lost to a member", "L4", []Hold{lost}, func(h *History) { h.AddFault(Fault{Spares: true, Begin: 4 * s, End: 7 * s}) }},
	} {
		h := new(History)
		for _, hold := range test.holds {
			h.Add(hold)
		}
		if test.more != nil {
			test.more(h)
		}
		var found []string
		var ofPeers []Violation // other libraries may have no tokens, deadlines and closed names
		for _, v := range h.Violations(8 * s) {
			if what, _, _ := strings.Cut(v.Text, ":"); what == "overlap" || what == "wait" || what == "lost" {
				ofPeers = append(ofPeers, v)
			}
			if _, weak := h.Weakness(v); !weak && !slices.Contains(found, v.Invariant) {
				found = append(found, v.Invariant)
				if v.Name != "" && h.Around(v.Name, v.At, s) == "" {
					t.Errorf("%s: no history around %v", test.name, v.At)
				}
			}
		}
		if got := h.PeerViolations(8 * s); !slices.Equal(got, ofPeers) {
			t.Errorf("%s: violations of another library %v, want %v", test.name, got, ofPeers)
		}
		// Two holders at once are also an early grant.
		if test.want == "S1" && len(found) == 2 && found[1] == "S4" {
			found = found[:1]
		}
		if got := strings.Join(found, " "); got != test.want {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
	}
}

func TestRecoveryIsTheTimeUntilTheRateIsBack(t *testing.T) {
	h := new(History)
	f := Fault{Begin: 10 * s, End: 12 * s}
	busy(h, 5*s, 10*s)
	if took, ok := h.Recovery(f, h.Rate(8*s, 10*s), 20*s); ok {
		t.Errorf("recovered after %v without a grant", took)
	}
	busy(h, 16*s, 20*s)
	if took, ok := h.Recovery(f, h.Rate(8*s, 10*s), 20*s); !ok || took < 3*s || took > 4*s {
		t.Errorf("recovered: %v after %v, want after 3 to 4 s", ok, took)
	}
}

func TestForgetKeepsWhatIsNeeded(t *testing.T) {
	h := new(History)
	for token := range int64(10) {
		at := time.Duration(token) * s
		h.Add(Hold{Who: "a", Name: "n", Token: token + 1, Asked: at, Got: at, Unlock: at + 1, Freed: at + 2, Expiry: at + s})
	}
	h.Add(Hold{Who: "a", Name: "held", Token: 1, Got: 1})
	h.Add(Hold{Who: "a", Name: "held", Token: 2, Got: 2})
	h.Forget(100 * s)
	if len(h.holds) != 3 {
		t.Errorf("%d holds are left, want the last one of n and two of held", len(h.holds))
	}
	h.Add(Hold{Who: "b", Name: "n", Token: 9, Asked: 101 * s, Got: 102 * s})
	wantFound(t, "tokens", h.CheckTokens())
}

func TestMatrixHasALinePerFaultAndAColumnPerStore(t *testing.T) {
	got := Matrix([]Result{
		{Store: "c", Library: "c v1", Server: "C 3", Faults: map[string]*FaultResult{"wiped": {Times: 1, NotPromised: map[string]int{"L3": 4, "L2": 1}}}},
		{Store: "b", Server: "B 2", Seed: 7, Faults: map[string]*FaultResult{"killed": {Times: 2, Recovery: 1.25, Violations: map[string]int{"S1": 1}}}},
		{Store: "a", Server: "A 1", Faults: map[string]*FaultResult{"killed": {Times: 2, Recovery: 2}, "wiped": {Times: 1, Weaknesses: map[string]int{"data": 7}}}},
	})
	want := `| fault | a | b | c |
|---|---|---|---|
| killed | 2×, 2.0 s | 2×, 1.2 s, **S1: 1**, seed 7 | – |
| wiped | 1×, 0.0 s, weakness shown | – | 1×, 0.0 s, not promised: L2 L3 |

- a: A 1
- b: B 2
- c: c v1 on C 3
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
