package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// exact is the slack of stores that share the clock of the suite.
const exact = time.Millisecond

// In real time, tests that run in parallel must not affect each other.
func TestModelPassesWithItsTestsSideBySide(t *testing.T) {
	m := newModel("", allFeatures, 1500*time.Millisecond)
	storetest.Run(t, storetest.Harness{
		Parallel: 20,
		Slack:    time.Second,
		Open:     func(testing.TB) store.Store { return m.open() },
		Residue:  func(testing.TB) []string { return m.residue() },
	})
}

// Otherwise a waiter that asks too late, as on a busy machine, would wait for ever.
func TestModelEndsTheWaitOfAWaiterThatItDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newModel("", allFeatures, time.Second).open()
		holder, waiter := suites.Request("a"), suites.Queued("a")
		suites.Granted(t, s, holder)
		suites.Refused(t, s, waiter)
		ended := make(chan error, 1)
		go func() { ended <- s.Wait(t.Context(), waiter.Name, waiter.ID) }()
		time.Sleep(2 * time.Second)
		suites.Release(t, s, holder)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// inBubble connects the suite to a new model for each test, in fake time.
func inBubble(bug string, features store.Features) storetest.Harness {
	var m *model
	heartbeat := 5 * time.Second
	if features&store.FeatureQueue == 0 {
		heartbeat = 0
	}
	return storetest.Harness{
		Slack: exact,
		Around: func(t *testing.T, test func(t *testing.T)) {
			m = newModel(bug, features, heartbeat)
			synctest.Test(t, test)
		},
		Open:    func(testing.TB) store.Store { return m.open() },
		Residue: func(testing.TB) []string { return m.residue() },
	}
}

func TestModelCompares(t *testing.T) {
	for features, sequences := range map[store.Features]int{allFeatures: 1000, 0: 200, store.FeatureQueue | store.FeatureShared: 200} {
		t.Run("with "+features.String(), func(t *testing.T) {
			storetest.Compare(t, inBubble("", features), storetest.CompareOptions{Sequences: sequences})
		})
	}
}

// envBug is the environment variable with the bug of a child process.
const envBug = "STORETEST_BUG"

// compare is the subtest of TestChild that calls Compare.
const compare = "compare"

// TestChild runs in the child processes that other tests start. A broken store must
// fail a real testing.T, but not that of the parent.
func TestChild(t *testing.T) {
	bug, ok := os.LookupEnv(envBug)
	if !ok {
		return
	}
	features := allFeatures
	if byBug[bug].bare {
		features = 0
	}
	storetest.Run(t, inBubble(bug, features))
	t.Run(compare, func(t *testing.T) { storetest.Compare(t, inBubble(bug, features), storetest.CompareOptions{}) })
}

var byBug = func() map[string]variant {
	m := make(map[string]variant)
	for _, v := range variants {
		m[v.bug] = v
	}
	return m
}()

// child runs some tests with a bug in a separate process and returns the tests that failed.
func child(ctx context.Context, bug string, tests ...string) (failed []string, output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.count=1", "-test.run=^TestChild$"+pattern(tests))
	// By default the race detector sleeps for a second at the end of every process.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", envBug+"="+bug)
	out, err := cmd.CombinedOutput()
	for _, m := range failure.FindAllSubmatch(out, -1) {
		failed = append(failed, string(m[1]))
	}
	if len(failed) > 0 && ctx.Err() == nil {
		err = nil // the child is expected to fail
	}
	return failed, string(out), err
}

var failure = regexp.MustCompile(`--- FAIL: TestChild/(\S+)`)

// pattern returns the part of -test.run that follows the name of the test function.
func pattern(tests []string) string {
	var topics, sentences []string
	for _, name := range tests {
		topic, sentence, _ := strings.Cut(storetest.LogName(name), "/")
		topics = append(topics, regexp.QuoteMeta(topic))
		sentences = append(sentences, regexp.QuoteMeta(sentence))
	}
	return "/^(" + strings.Join(topics, "|") + ")$/^(" + strings.Join(sentences, "|") + ")$"
}

func TestEveryTestCatchesABrokenStore(t *testing.T) {
	names := storetest.Names()
	caught := map[string]bool{}
	for _, v := range variants {
		for _, name := range v.caught {
			if !slices.Contains(names, name) {
				t.Errorf("%q is to be caught by %q, which is no test", v.bug, name)
			}
			caught[name] = true
		}
		if len(v.caught) == 0 && v.unseen != "" {
			t.Errorf("%q is caught by nothing", v.bug)
		}
	}
	for _, name := range names {
		if !caught[name] {
			t.Errorf("%q catches nothing: add a variant", name)
		}
	}
}
