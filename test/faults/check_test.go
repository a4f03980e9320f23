package faults

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// good is a history of three holders. Each asks while the previous one holds the lock.
func good() *History {
	h := new(History)
	h.Add(Hold{Who: "a", Name: "n", Token: 10, Asked: 1, Got: 3, Believed: 20, Unlock: 21, Freed: 24, Expiry: 100})
	h.Add(Hold{Who: "b", Name: "n", Token: 11, Asked: 5, Got: 25, Believed: 40, Unlock: 41, Freed: 45, Expiry: 125})
	h.Add(Hold{Who: "c", Name: "n", Token: 15, Asked: 6, Got: 44, Believed: 60, Unlock: 61, Freed: 65, Expiry: 144})
	h.Add(Hold{Who: "d", Name: "other", Token: 12, Asked: 6, Got: 7, Believed: 60, Unlock: 61, Freed: 65, Expiry: 144})
	return h
}

// wantFound fails the test unless this check has found something, or none if check is empty.
func wantFound(t *testing.T, check string, err error) {
	t.Helper()
	if (err != nil) != (check != "") || err != nil && !strings.HasPrefix(err.Error(), check+":") {
		t.Errorf("want what %q finds, got %v", check, err)
	}
}

func TestChecksFindWhatIsAddedToAGoodHistory(t *testing.T) {
	wantFound(t, "", good().Check())
	wantFound(t, "", new(History).Check())
	overlap, tokens, mutex := (*History).CheckOverlap, (*History).CheckTokens, (*History).CheckMutex
	for _, test := range []struct {
		check func(*History) error
		found string // empty if the history is good
		holds []Hold
	}{
		{overlap, "overlap", []Hold{{Who: "e", Name: "n", Token: 16, Asked: 50, Got: 59, Believed: 70}}},
		{overlap, "overlap", []Hold{{Who: "a", Name: "inside", Token: 1, Got: 10, Believed: 100}, {Who: "b", Name: "inside", Token: 2, Got: 20, Believed: 30}}},
		{overlap, "", []Hold{{Who: "e", Name: "n", Token: 16, Asked: 50, Got: 59, Believed: 70, Paused: true}, {Who: "e", Name: "n", Token: 16, Asked: 50, Got: 59, Believed: 90}}},
		{tokens, "tokens", []Hold{{Who: "e", Name: "n", Token: 14, Asked: 66, Got: 67}}},
		{tokens, "tokens", []Hold{{Who: "e", Name: "n", Token: 15, Asked: 66, Got: 67}}},
		{mutex, "mutex", []Hold{{Who: "e", Name: "n", Token: 16, Asked: 50, Got: 59, Unlock: 66, Freed: 67, Expiry: 159}}},
		{mutex, "mutex", []Hold{{Who: "e", Name: "n", Token: 14, Asked: 66, Got: 67, Unlock: 68, Freed: 69, Expiry: 159}}},
		// A grant of a killed holder may have expired, or not.
		{mutex, "", []Hold{{Who: "killed", Name: "n", Token: 20, Asked: 70, Got: 71, Expiry: 150}, {Who: "late", Name: "n", Token: 21, Asked: 72, Got: 151, Expiry: 300}}},
		{mutex, "mutex", []Hold{{Who: "killed", Name: "n", Token: 20, Asked: 70, Got: 71, Expiry: 150}, {Who: "late", Name: "n", Token: 21, Asked: 72, Got: 149, Expiry: 300}}},
	} {
		h := good()
		for _, hold := range test.holds {
			h.Add(hold)
		}
		wantFound(t, test.found, test.check(h))
	}
}

func TestPChecksLongHistoriesInTime(t *testing.T) {
	h := new(History)
	at := time.Duration(1)
	for token := range int64(2000) {
		// There are always twenty waiters.
		h.Add(Hold{Who: "x", Name: "n", Token: token + 1, Asked: max(1, at-20*10), Got: at, Unlock: at + 5, Freed: at + 8, Expiry: at + 1000})
		at += 10
	}
	wantFound(t, "", h.CheckMutex())
	h.Add(Hold{Who: "y", Name: "n", Token: 5000, Asked: at - 10, Got: at - 8, Expiry: at + 1000})
	wantFound(t, "mutex", h.CheckMutex())
}

func TestRFindsALowerTokenAndALostUpdate(t *testing.T) {
	log := []Write{{Token: 1, Read: 0, Value: 1}, {Token: 1, Read: 1, Value: 2}, {Token: 7, Read: 2, Value: 3}}
	wantFound(t, "", CheckLog(log))
	wantFound(t, "resource", CheckLog(append(log[:3:3], Write{Token: 6, Read: 3, Value: 4})))
	wantFound(t, "resource", CheckLog(append(log[:3:3], Write{Token: 8, Read: 2, Value: 3})))
	wantFound(t, "resource", CheckLog(append(log[:3:3], Write{Token: 8, Read: 3, Value: 5})))
}

func TestLeftoverFindsAGoroutine(t *testing.T) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for word, want := range map[string]int{"faults.TestLeftoverFindsAGoroutine(": 1, "faults.nobody(": 0} {
		if left := Leftover(string(stacks), word); len(left) != want {
			t.Errorf("found %d goroutines of %s, want %d: %v", len(left), word, want, left)
		}
	}
}
