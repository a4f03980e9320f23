// Package storetest is the conformance suite of package store. Holdfast keeps its promises on a
// store that passes both parts of the suite, [Run] and [Compare].
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB) store.Store { … },
//		})
//	}
//
//	func TestCompare(t *testing.T) {
//		storetest.Compare(t, harness, storetest.CompareOptions{})
//	}
//
// The suite runs against a real server. Other programs may use it at the same time, because every test
// uses its own names. The suite does not test speed. It measures from before the first call to after the
// last reply, so that a slow machine cannot make a correct store fail. Where a promise is an upper bound,
// it allows the server [Harness].Slack.
//
// A test that needs a feature runs only on stores that declare it. The group "undeclared" tests that a
// store refuses calls for the other features. No test is ever reported as skipped.
//
// Compare makes random sequences of calls, and compares every answer with a model of the contract. Run
// tests what such sequences do not have: concurrent and cancelled calls, pushed wake-ups, unusual names,
// many holders, and the end of a connection. It repeats only the most important rules.
//
// The contract leaves choices to a store, such as the exact time of an expiry. So the model decides
// whether an answer is allowed, and does not predict it. A sequence that fails is shortened and
// printed as a test that calls [Replay].
package storetest

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Harness connects the suite to the store under test.
type Harness struct {
	// Open returns a new connection to the server under test, the same for all connections of one test, as
	// independent as the connection of another process. The suite closes each connection exactly once.
	Open func(t testing.TB) store.Store

	// Around, if set, wraps each test. A store within this process uses synctest.Test, so
	// that the tests run in fake time. Open and Residue are then called inside the bubble.
	Around func(t *testing.T, test func(t *testing.T))

	// TTL is the TTL of grants that expire during a test: long enough for some dozens of calls, and short enough
	// to wait for. 0 means one second, or the store's MinTTL if that is longer.
	TTL time.Duration

	// Slack is how late the server may expire grants and waiters, and how inexact its ages and remaining times
	// may be. 0 means two seconds. It does not allow the server to be early.
	Slack time.Duration

	// Residue, if set, returns the contents of the server: keys, rows, nodes, sessions. The suite fails if it
	// returns more after a test, with all grants ended and all connections closed, than before. An entry must not
	// change while it stays, as an age would. Contents that may stay, such as a counter, do not belong to it.
	Residue func(t testing.TB) []string

	// Parallel is how many tests run at the same time; 0 means one. It is for stores on which most tests wait for
	// TTLs. Tests of G7, which count goroutines and inspect the whole server, run alone after all others.
	Parallel int
}

// A test checks one sentence of the contract.
type test struct {
	name  string
	needs store.Features // run only if the store declares all of these
	lacks store.Features // and run only if it declares none of these
	run   func(s *suite)
}

// A topic is a promise, or another part of the contract, with its tests.
type topic struct {
	name  string
	tests []test
}

// The last topic, which counts goroutines and inspects the whole server, never runs beside others.
var topics = []topic{
	{"G1 exclusion", exclusionTests},
	{"G2 loss", lossTests},
	{"G3 fencing", fencingTests},
	{"G4 identity", identityTests},
	{"G5 unknown", unknownTests},
	{"G6 waiting", waitingTests},
	{"modes", modesTests},
	{"listing", listingTests},
	{"names", namesTests},
	{"undeclared", undeclaredTests},
	{"G7 quiet", quietTests},
}

const capabilitiesTest = "capabilities are sound"

// Run runs the suite as subtests, alone in its process, because it counts goroutines.
func Run(t *testing.T, h Harness) {
	g := h.target(t)
	sound := t.Run(capabilitiesTest, func(t *testing.T) { g.Around(t, g.checkCapabilities) })
	if !sound {
		return // the results of other tests would be meaningless
	}
	beside := 0
	if h.Parallel > 0 {
		beside = len(topics) - 1
		g.runBeside(t, topics[:beside])
	}
	for _, topic := range topics[beside:] {
		t.Run(topic.name, func(t *testing.T) {
			for _, test := range topic.declared(g.caps) {
				g.run(t, test, (*suite).end)
			}
		})
	}
}

type target struct {
	Harness
	caps store.Capabilities
	long time.Duration // a TTL that does not end during a test
}

// target sets the defaults of a harness, and asks the store for its capabilities.
func (h Harness) target(t *testing.T) target {
	if h.Around == nil {
		h.Around = func(t *testing.T, test func(t *testing.T)) { test(t) }
	}
	h.Slack = cmp.Or(h.Slack, 2*time.Second)
	g := target{Harness: h, long: eternity}
	h.Around(t, func(t *testing.T) { // not a subtest, so that -run cannot leave it out
		c := h.Open(t)
		g.caps = c.Capabilities()
		closeStores(t, c)
	})
	g.TTL = cmp.Or(h.TTL, max(time.Second, g.caps.MinTTL))
	if g.caps.MaxTTL > 0 {
		g.long = min(g.long, g.caps.MaxTTL)
	}
	return g
}

// runBeside runs the tests of topics in parallel, and counts goroutines once for all of them.
func (g target) runBeside(t *testing.T, topics []topic) {
	all := &suite{T: t, target: g, goroutines: runtime.NumGoroutine()}
	turns := make(chan struct{}, g.Parallel)
	var wg sync.WaitGroup
	for _, topic := range topics {
		wg.Go(func() {
			t.Run(topic.name, func(t *testing.T) {
				var wg sync.WaitGroup
				for _, test := range topic.declared(g.caps) {
					wg.Go(func() {
						turns <- struct{}{}
						defer func() { <-turns }()
						g.run(t, test, (*suite).cleanUp)
					})
				}
				wg.Wait()
			})
		})
	}
	wg.Wait()
	all.end()
}

// declared returns the tests for the features that a store declares, and for those that it does not.
func (c *topic) declared(caps store.Capabilities) []test {
	return slices.DeleteFunc(slices.Clone(c.tests), func(test test) bool {
		return !caps.Features.Has(test.needs) || caps.Features&test.lacks != 0
	})
}

// run runs a test as a subtest. The end is deferred instead of registered with t.Cleanup, because the
// context of the test, which a harness may use to open stores, ends before the cleanups run.
func (g target) run(t *testing.T, c test, end func(s *suite)) {
	t.Run(c.name, func(t *testing.T) {
		g.Around(t, func(t *testing.T) {
			s := newSuite(t, g)
			defer end(s)
			c.run(s)
		})
	})
}

func (g target) checkCapabilities(t *testing.T) {
	one, two, caps := g.Open(t), g.Open(t), g.caps
	for _, s := range []store.Store{one, one, two} {
		if again := s.Capabilities(); again != caps {
			t.Errorf("capabilities are not constant: %+v, then %+v", caps, again)
		}
	}
	closeStores(t, one, two)
	if caps.Store == "" {
		t.Error("Capabilities.Store is empty: want the name of the kind of store")
	}
	if caps.MinTTL <= 0 || caps.MaxTTL != 0 && caps.MaxTTL < caps.MinTTL {
		t.Errorf("MinTTL %v, MaxTTL %v: want 0 < MinTTL, and MinTTL <= MaxTTL unless that is 0", caps.MinTTL, caps.MaxTTL)
	}
	if caps.Features.Has(store.FeatureQueue) && caps.Heartbeat <= 0 {
		t.Errorf("Heartbeat %v: want more than 0, otherwise a dead waiter keeps its place forever", caps.Heartbeat)
	}
	if err := caps.CheckTTL(g.TTL); err != nil {
		t.Errorf("Harness.TTL: %v", err)
	}
}
