// Package diagnosistest helps to test the checks of stores.
package diagnosistest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

// A Record records for each check whether it was seen with a problem and without one.
type Record struct {
	good, bad sync.Map // by ID
}

// Note adds findings. It fails the test if one is incomplete.
func (r *Record) Note(t testing.TB, findings []store.Finding) []store.Finding {
	t.Helper()
	for _, f := range findings {
		switch {
		case f.ID == "" || f.Found == "":
			t.Errorf("incomplete: %+v", f)
		case f.Level == store.LevelOK && f.Risk+f.Remedy != "":
			t.Errorf("it is OK and tells of a risk: %+v", f)
		case f.Level != store.LevelOK && (f.Risk == "" || f.Remedy == ""):
			t.Errorf("no risk or no remedy: %+v", f)
		case strings.Contains(fmt.Sprint(f), "%!"):
			t.Errorf("a malformed text: %+v", f)
		}
		if f.Level == store.LevelOK {
			r.good.Store(f.ID, true)
		} else if f.Level != store.LevelUnknown {
			r.bad.Store(f.ID, true)
		}
	}
	return findings
}

// Look opens a store, records its findings, and compares those that are not OK: see [Want].
func (r *Record) Look(t testing.TB, url string, ttl time.Duration, want ...string) []store.Finding {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	findings := r.Note(t, s.(store.Diagnoser).Diagnose(t.Context(), ttl))
	Want(t, findings, want...)
	return findings
}

// Complete fails the test unless every check whose ID begins with prefix was seen both with a
// problem and without one. The exceptions need to be seen in one way only.
func (r *Record) Complete(t testing.TB, prefix string, exceptions ...string) {
	t.Helper()
	for _, c := range diagnosis.All() {
		_, good := r.good.Load(c.ID)
		_, bad := r.bad.Load(c.ID)
		if strings.HasPrefix(c.ID, prefix) && !slices.Contains(exceptions, c.ID) && (!good || !bad) {
			t.Errorf("%s: seen in order: %t, seen wrong: %t", c.ID, good, bad)
		}
	}
}

// Want fails the test unless exactly these checks have a level other than OK. Each is written as
// "id level". Nodes with the same finding are listed once.
func Want(t testing.TB, findings []store.Finding, want ...string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		if f.Level != store.LevelOK {
			got = append(got, f.ID+" "+f.Level.String())
		}
	}
	slices.Sort(got)
	got = slices.Compact(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("findings %q, want %q; all: %s", got, want, Text(findings))
	}
}

// Find returns the first finding of a check. It fails the test if there is none.
func Find(t testing.TB, findings []store.Finding, id string) store.Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f store.Finding) bool { return f.ID == id })
	if i < 0 {
		t.Fatalf("no finding %s in %s", id, Text(findings))
	}
	return findings[i]
}

// Text returns the findings that are not OK, one per line.
func Text(findings []store.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		if f.Level != store.LevelOK {
			fmt.Fprintf(&b, "\n%s %s %s: %s", f.Level, f.ID, f.Node, f.Found)
		}
	}
	return b.String()
}
