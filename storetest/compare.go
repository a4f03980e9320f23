package storetest

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	wakeLimit = 15 * time.Second // for a Wait that must return at once; only a broken store takes that long
	slowWake  = time.Second      // how long a wake-up may take on a slow machine
)

// CompareOptions are the options of [Compare].
type CompareOptions struct {
	// Seed selects the sequences. 0 means 1. The environment variable HOLDFAST_SEED overrides it.
	Seed uint64

	// Sequences is how many are compared. 0 means 1,000. HOLDFAST_SEQUENCES overrides it.
	Sequences int

	// Steps is the number of steps in a sequence. 0 means 25.
	Steps int

	// Exact demands more than the contract: Wait returns only to a waiter that should ask again.
	Exact bool
}

// Compare makes random sequences of calls, and compares every answer of the store with a model of
// the contract. Sequences run in parallel, each on its own names, and some of them wait until
// grants expire. A sequence that fails is shortened and printed as a test that calls [Replay].
func Compare(t *testing.T, h Harness, opts CompareOptions) {
	g := h.target(t)
	number := func(name string, value, otherwise uint64) uint64 {
		if text := os.Getenv(name); text != "" {
			var err error
			if value, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		return cmp.Or(value, otherwise)
	}
	opts.Seed = number("HOLDFAST_SEED", opts.Seed, 1)
	opts.Sequences = int(number("HOLDFAST_SEQUENCES", uint64(opts.Sequences), 1000))
	opts.Steps = cmp.Or(opts.Steps, 25)
	g.Around(t, func(t *testing.T) { g.compareAll(t, opts) })
}

// Replay repeats a sequence of [Compare].
func Replay(t *testing.T, h Harness, steps []Step) {
	g := h.target(t)
	g.Around(t, func(t *testing.T) {
		c := g.connect(t, false)
		defer closeStores(t, c.conns[:]...)
		if err := c.replay(steps); err != nil {
			t.Error(err)
		}
	})
}

// compared is the store that is compared, through two connections.
type compared struct {
	target
	fake  bool // time is fake, so that waiting costs nothing, and a wake-up takes no time
	exact bool // see CompareOptions
	conns [2]store.Store
}

func (g target) connect(t *testing.T, exact bool) compared {
	c := compared{target: g, exact: exact, conns: [2]store.Store{g.Open(t), g.Open(t)}}
	start := time.Now()
	time.Sleep(time.Millisecond)
	c.fake = time.Since(start) == time.Millisecond // only fake time is that exact
	return c
}

// replay makes the given steps, and returns how an answer breaks the contract.
func (c compared) replay(steps []Step) error {
	q := newSequence(c)
	defer q.cleanUp()
	return q.run(slices.Values(steps))
}

func (q *sequence) run(steps iter.Seq[Step]) error {
	n := 0
	for st := range steps {
		n++
		if err := q.do(st); err != nil {
			return fmt.Errorf("step %d, %s: %w", n, opNames[st.Op], err)
		}
	}
	return nil
}

// generate makes a new sequence until stop says so, and returns how the last answer breaks the contract.
func (c compared) generate(g *generator, length int, stop func() bool) (steps []Step, wrong error) {
	q := newSequence(c)
	defer q.cleanUp()
	wrong = q.run(func(yield func(Step) bool) {
		add := func(st Step) bool {
			steps = append(steps, st)
			return yield(st)
		}
		for range length {
			if stop() || !add(g.next(q)) {
				return
			}
		}
		if g.has(store.FeatureList) && !stop() {
			add(Step{Op: List, Conn: 1, All: true})
		}
	})
	return steps, wrong
}

func (g target) compareAll(t *testing.T, opts CompareOptions) {
	c := g.connect(t, opts.Exact)
	defer closeStores(t, c.conns[:]...)
	// In real time, one sequence in ten waits for TTLs. Those run all at once.
	workers, share := 8, 10
	if c.fake {
		workers, share = 1, 2
	}
	type failure struct {
		steps []Step
		wrong error
		which int
	}
	var first atomic.Pointer[failure]
	stop := func() bool { return first.Load() != nil }
	one := func(i int) {
		if stop() {
			return
		}
		g := newGenerator(opts.Seed, uint64(i), c.caps.Features)
		if g.slow = i%share == 0; g.slow {
			g.expires, g.pauses = 2*g.IntN(2), 6
			if c.fake {
				g.pauses = opts.Steps
			}
		}
		if steps, err := c.generate(g, opts.Steps, stop); err != nil {
			first.CompareAndSwap(nil, &failure{steps, err, i})
		}
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, workers)
	for i := range opts.Sequences {
		if !c.fake && i%share == 0 {
			wg.Go(func() { one(i) })
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			one(i)
			<-turns
		})
	}
	wg.Wait()
	failed := first.Load()
	if failed == nil {
		return
	}
	again := g.connect(t, opts.Exact)
	defer closeStores(t, again.conns[:]...)
	shortest, err := again.shrink(failed.steps)
	if err == nil {
		t.Errorf("sequence %d of seed %d: %v\nIt did not fail again when it was repeated alone:\n%s",
			failed.which, opts.Seed, failed.wrong, source(failed.steps))
		return
	}
	t.Errorf("sequence %d of seed %d: %v\nThe shortest sequence found that fails: %v\n%s", failed.which, opts.Seed, failed.wrong, err, source(shortest))
}

// shrink removes steps while the sequence still fails. It returns no error if it never fails.
func (c compared) shrink(steps []Step) (shortest []Step, wrong error) {
	begin, tries := time.Now(), 0
	fails := func(steps []Step) bool {
		if tries++; tries > 300 || time.Since(begin) > 30*time.Second && tries > 2 {
			return false
		}
		err := c.replay(steps)
		if err != nil {
			wrong = err
		}
		return err != nil
	}
	if !fails(steps) {
		return nil, nil
	}
	for size := max(1, len(steps)/2); size > 0; size /= 2 {
		for i := 0; i+size <= len(steps); {
			if less := slices.Delete(slices.Clone(steps), i, i+size); fails(less) {
				steps = less
			} else {
				i++
			}
		}
	}
	for i := range steps {
		for _, simpler := range []func(st *Step){
			func(st *Step) { st.Conn = 0 }, func(st *Step) { st.Tokens = 0 }, func(st *Step) { st.Floor = false },
			func(st *Step) { st.Short = false }, func(st *Step) { st.Queue = false }, func(st *Step) { st.All = false },
		} {
			less := slices.Clone(steps)
			if simpler(&less[i]); less[i] != steps[i] && fails(less) {
				steps = less
			}
		}
	}
	return steps, wrong
}

func source(steps []Step) string {
	var b strings.Builder
	b.WriteString("func TestReplay(t *testing.T) {\n\tstoretest.Replay(t, harness(t), []storetest.Step{\n")
	for _, st := range steps {
		fmt.Fprintf(&b, "\t\t%s,\n", st)
	}
	b.WriteString("\t})\n}")
	return b.String()
}
