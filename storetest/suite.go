// Package storetest is the conformance suite of package store: what Holdfast promises is
// true on a store if the store passes.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB) store.Store { … },
//		})
//	}
//
// It runs against a real server, which other programs may use at the same time: every
// test takes names of its own. It asserts no speed. Where a promise is about time, the
// suite measures from before the first call was sent to after the last one was answered,
// so that a slow machine never turns a right answer into a wrong one, and allows the
// server [Harness].Slack where the promise is an upper bound.
//
// A test that needs a feature is run only on stores that declare it; the group
// "undeclared" then asserts that the store refuses what it does not declare. Nothing is
// ever skipped.
package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Harness connects the suite to the store under test.
type Harness struct {
	// Open returns a new connection to the server under test, as independent of the
	// others as another process would be. All connections of one test reach the same
	// server. The suite closes what it opens, exactly once.
	Open func(t testing.TB) store.Store

	// Around, if set, wraps each test. A store that lives in this process passes
	// synctest.Test, so that time is fake, exact and free. Open and Residue are then
	// called inside the bubble.
	Around func(t *testing.T, test func(t *testing.T))

	// TTL is long enough for the server to answer some dozens of calls, and short enough
	// for a test to wait for its end. 0 means one second, or the store's MinTTL if that
	// is longer.
	TTL time.Duration

	// Slack is how late the server may be in ending what ends by the clock, and how
	// coarse the ages and remaining times are that it tells. 0 means two seconds. It
	// never excuses what comes too early.
	Slack time.Duration

	// Residue, if set, returns what is on the server: keys, rows, nodes, sessions. The
	// suite asks before a test and after it, with all grants ended and all connections
	// closed, and wants nothing new. Leave out what is meant to stay, such as the one
	// counter of a server.
	Residue func(t testing.TB) []string

	// Parallel is how many tests run at once; 0 means one after the other. It is for stores
	// on which most of the time is spent waiting for a TTL to end. Tests of G7, which count
	// goroutines and look at the whole server, then come after all others.
	Parallel int
}

// A test is one sentence about the contract.
type test struct {
	name  string
	needs store.Features // run only if the store declares all of these
	lacks store.Features // and none of these
	run   func(s *suite)
}

// A topic is a promise, or another part of the contract, with its tests.
type topic struct {
	name  string
	tests []test
}

var topics = []topic{
	{"G1 exclusion", exclusionTests},
	{"G2 loss", lossTests},
	{"G3 fencing", fencingTests},
	{"G4 identity", identityTests},
	{"G5 unknown", unknownTests},
	{"G6 waiting", waitingTests},
	{"takeover", takeoverTests},
	{"modes", modesTests},
	{"keep", keepTests},
	{"listing", listingTests},
	{"names", namesTests},
	{quietTopic, quietTests},
	{"undeclared", undeclaredTests},
}

const (
	capabilitiesTest = "capabilities are sound"
	quietTopic       = "G7 quiet"
)

// Run runs the whole suite as subtests of t. It must not run in parallel with anything
// else in the process, because it counts goroutines.
func Run(t *testing.T, h Harness) {
	if h.Around == nil {
		h.Around = func(t *testing.T, test func(t *testing.T)) { test(t) }
	}
	if h.Slack == 0 {
		h.Slack = 2 * time.Second
	}
	var caps store.Capabilities
	h.Around(t, func(t *testing.T) { // no subtest: -run must not leave it out
		c := h.Open(t)
		caps = c.Capabilities()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if h.TTL == 0 {
		h.TTL = max(time.Second, caps.MinTTL)
	}
	sound := t.Run(capabilitiesTest, func(t *testing.T) {
		h.Around(t, func(t *testing.T) { checkCapabilities(t, h, caps) })
	})
	if !sound {
		return // nothing else would mean anything
	}
	if h.Parallel > 0 {
		runBeside(t, h, caps)
	}
	for _, topic := range topics {
		if h.Parallel > 0 && topic.name != quietTopic {
			continue
		}
		t.Run(topic.name, func(t *testing.T) {
			for _, test := range topic.declared(caps) {
				t.Run(test.name, func(t *testing.T) { test.runAlone(t, h, caps) })
			}
		})
	}
}

// runBeside runs the tests that need not be alone, some of them at a time, and counts
// goroutines once for all of them.
func runBeside(t *testing.T, h Harness, caps store.Capabilities) {
	all := newSuite(t, Harness{TTL: h.TTL}, caps)
	turns := make(chan struct{}, h.Parallel)
	var wg sync.WaitGroup
	for _, topic := range topics {
		if topic.name == quietTopic {
			continue
		}
		wg.Go(func() {
			t.Run(topic.name, func(t *testing.T) {
				var wg sync.WaitGroup
				for _, test := range topic.declared(caps) {
					wg.Go(func() {
						turns <- struct{}{}
						defer func() { <-turns }()
						t.Run(test.name, func(t *testing.T) {
							h.Around(t, func(t *testing.T) {
								s := newSuite(t, h, caps)
								defer s.cleanUp()
								test.run(s)
							})
						})
					})
				}
				wg.Wait()
			})
		})
	}
	wg.Wait()
	all.end()
}

// declared are the tests of what a store says it can do.
func (c *topic) declared(caps store.Capabilities) (tests []test) {
	for _, test := range c.tests {
		if caps.Features.Has(test.needs) && caps.Features&test.lacks == 0 {
			tests = append(tests, test)
		}
	}
	return tests
}

func (c *test) runAlone(t *testing.T, h Harness, caps store.Capabilities) {
	h.Around(t, func(t *testing.T) {
		s := newSuite(t, h, caps)
		defer s.end()
		c.run(s)
	})
}

func checkCapabilities(t *testing.T, h Harness, caps store.Capabilities) {
	one, two := h.Open(t), h.Open(t)
	for _, s := range []store.Store{one, one, two} {
		if again := s.Capabilities(); again != caps {
			t.Errorf("capabilities are not constant: %+v, then %+v", caps, again)
		}
	}
	for _, s := range []store.Store{one, two} {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if caps.Store == "" {
		t.Error("Capabilities.Store is empty: want a word for people")
	}
	if caps.MinTTL <= 0 || caps.MaxTTL != 0 && caps.MaxTTL < caps.MinTTL {
		t.Errorf("MinTTL %v, MaxTTL %v: want 0 < MinTTL, and MinTTL <= MaxTTL unless that is 0", caps.MinTTL, caps.MaxTTL)
	}
	if caps.Features.Has(store.FeatureQueue) && caps.Heartbeat <= 0 {
		t.Errorf("Heartbeat %v: want more than 0, or a dead waiter keeps its place for ever", caps.Heartbeat)
	}
	if err := caps.CheckTTL(h.TTL); err != nil {
		t.Errorf("Harness.TTL: %v", err)
	}
}
