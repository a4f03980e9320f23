package quorum

import "testing"

func TestTokensThatArePassedOnAreRecordedByAMajority(t *testing.T) {
	yes := func(first, last int64) vote { return vote{granted, first, last} }
	for _, test := range []struct {
		name  string
		votes []vote // the bell is the first
		want  decision
	}{
		{"all agree", []vote{{}, yes(5, 20), yes(5, 20), yes(5, 20), yes(5, 20)}, decision{won, 5, 20}},
		{"one is ahead", []vote{{}, yes(5, 20), yes(900, 915), yes(5, 20), yes(5, 20)}, decision{won, 5, 20}},
		{"one has fewer", []vote{{}, yes(5, 20), yes(5, 6), yes(5, 20), yes(5, 20)}, decision{won, 5, 20}},
		{"two have fewer", []vote{{}, yes(5, 20), yes(5, 6), yes(5, 7), yes(5, 20)}, decision{won, 5, 7}},
		{"one is missing", []vote{{}, yes(5, 20), {state: refused}, yes(5, 20), yes(5, 20)}, decision{verdict: lost}},
		{"one does not count", []vote{{}, yes(5, 20), {state: uncounted}, yes(5, 20), yes(5, 20)}, decision{verdict: lost}},
		{"three nodes", []vote{{}, yes(5, 20), yes(7, 12)}, decision{won, 7, 12}},
	} {
		if d := rules(0).decideBaton(test.votes, 0); d != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, d, test.want)
		}
	}
}
