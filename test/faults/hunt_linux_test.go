package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

var (
	huntStore = flag.String("hunt-store", "sqlite", "the store or the other library to hunt on: "+strings.Join(huntStores(), ", "))
	huntTime  = flag.Duration("hunt-time", 4*time.Second, "how long to hunt")
	huntSeed  = flag.Uint64("hunt-seed", 1, "seed of the calls and the faults; 0 means a random one")
	huntFault = flag.String("hunt-fault", "", "inject only faults of this kind; \"each\" means all kinds in turn, one at a time")
	huntJSON  = flag.String("hunt-json", "", "folder for the record of the run")
)

const (
	huntChildren = 4
	huntClients  = 2 // per child

	// recovery is how long after a fault the rate may be below half of what it was: L1.
	recovery = 5 * time.Second

	// slack is how much later than promised something may be seen on a busy machine.
	slack = 3 * time.Second
)

// A hunt runs processes whose clients make all calls of the library, while processes, networks and
// servers fail, and checks the history.
type hunt struct {
	t        testing.TB
	bed      *bed
	clock    *wallClock // of the servers; nil if it cannot be set
	troubles []trouble
	requests func() float64 // of all clients since the start of the server; nil if it is not known
	asks     float64        // documented bound of a waiter's requests in a heartbeat
	rand     *rand.Rand
	caps     holdfast.Capabilities
	history  *History
	resource *servers.Redis
	urls     []string // one per child
	wires    []wires  // the proxies of each child; empty if there are none
	children []*child // the newest child at each index
	names    []string // of the children
	born     int
	round    int
	began    time.Duration
	rates    []float64 // of grants per second before each fault, sorted
	result   Result
	peer     string          // the other library that is used; Holdfast if empty
	faults   int             // so far
	fault    string          // the kind of the last fault
	seen     map[string]bool // violations that were reported

	// In a database, lockRows returns a function that locks rows of names for a time, as that of a trouble,
	// and rows returns how many names have rows. Otherwise they are nil.
	lockRows func(names ...string) func(d time.Duration, i int)
	rows     func(prefix string) string

	mu       sync.Mutex
	accepted map[string]int64
	pending  map[string]int64 // writes with an unknown outcome
	found    []Violation      // that the history does not show
}

// TestHunt makes random calls under random faults, on a store, for a time, with a seed. By default
// it only tests the hunt itself.
func TestHunt(t *testing.T) {
	begin, ok := huntBeds[*huntStore]
	other, isPeer := peers[*huntStore]
	if isPeer {
		begin = other.begin
	} else if !ok {
		t.Fatalf("no store %q; want one of %s", *huntStore, strings.Join(huntStores(), ", "))
	}
	seed := *huntSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	h := &hunt{
		t: t, rand: rand.New(rand.NewPCG(seed, 0)), history: new(History), resource: startShared(t),
		seen: make(map[string]bool), accepted: make(map[string]int64), pending: make(map[string]int64),
		result: Result{Date: time.Now().UTC(), Store: *huntStore, Seed: seed, Faults: make(map[string]*FaultResult)},
	}
	if isPeer {
		h.peer = *huntStore
	}
	t.Logf("hunt on %s for %v with seed %d", *huntStore, *huntTime, seed)
	begin(h)
	h.run()
}

// connect connects each child, through proxies of its own if the servers do not report other addresses.
func (h *hunt) connect() {
	for range huntChildren {
		url, w := h.bed.url, wires(nil)
		if h.bed.group == nil && h.bed.shards == nil && h.bed.file == "" {
			url, w = h.bed.behind()
		}
		h.urls, h.wires = append(h.urls, url), append(h.wires, w)
	}
}

func (h *hunt) run() {
	c := h.bed.open()
	h.caps = c.Capabilities()
	h.bed.close(c)
	h.children, h.names = make([]*child, huntChildren), make([]string, huntChildren)
	for i := range huntChildren {
		h.spawn(i)
	}
	h.began = now()
	ended := make(chan struct{})
	go h.watchKeys(ended)
	go h.watchPauses()
	time.Sleep(window)
	// The pause is for the rate before a fault.
	for ; now()-h.began < *huntTime; time.Sleep(window / 4) {
		h.recover(h.inflict())
		h.check()
		h.history.Forget(now() - time.Minute)
	}
	close(ended)
	h.result.Seconds = (now() - h.began).Seconds()
	if h.peer != "" {
		for _, c := range h.children {
			c.kill()
		}
		h.check()
		h.write()
		return
	}
	for _, c := range h.children {
		c.finish()
	}
	h.check()
	h.mu.Lock()
	err := checkShared(h.resource, h.accepted, h.pending)
	h.mu.Unlock()
	h.require(err == nil, "S3", "%v", err)
	h.fault = "none"
	h.checkCancelled()
	h.checkWaiters()
	h.checkHang()
	h.checkRow()
	h.checkResidue()
	h.write()
}

// spawn starts the child with an index, or replaces it.
func (h *hunt) spawn(i int) {
	h.born++
	h.names[i] = fmt.Sprint("p", h.born)
	h.children[i] = spawn(h.t, h.history, order{
		Role: "hunt", URL: h.urls[i], Resource: h.resource.Addr(),
		TTL: huntTTL, Clients: huntClients, Who: h.names[i], Seed: h.result.Seed*1000 + uint64(h.born), Peer: h.peer,
	}, h.hear)
}

// hear gets the reports of children about the resource, and about wrong results.
func (h *hunt) hear(r report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case r.Wrong != "":
		h.found = append(h.found, Violation{Invariant: "API", Text: r.Wrong, At: now()})
		return
	case !r.Done:
		h.pending[r.Writing]++
		return
	case r.Accepted:
		h.accepted[r.Writing]++
	}
	h.pending[r.Writing]--
}

// recover checks L1 after a fault. The rate before it may have been high by chance, so it is
// compared with the usual one as well.
func (h *hunt) recover(f Fault) {
	before := h.history.Rate(f.Begin-window/2, f.Begin)
	h.rates = append(h.rates, before)
	slices.Sort(h.rates)
	h.result.Rate = h.rates[len(h.rates)/2]
	before = min(before, h.result.Rate)
	most := recovery + slack
	if f.Process != "" {
		most += huntTTL + h.caps.Heartbeat // names of a dead client, and its places in queues
	}
	for {
		took, ok := h.history.Recovery(f, before, now())
		if ok && took <= most {
			r := h.of(f.Kind)
			r.Recovery = max(r.Recovery, took.Seconds())
			return
		}
		if ok || now()-f.End > most+2*window {
			h.require(false, "L1", "rate: %v after the fault %q, which lasted %v, there are %.0f grants per second; before there were %.0f",
				now()-f.End, f.Kind, f.End-f.Begin, h.history.Rate(now()-window, now()), before)
			return
		}
		time.Sleep(window / 8)
	}
}

// check checks all invariants that the history shows.
func (h *hunt) check() {
	bound := h.caps.Heartbeat + 3*time.Second + slack // the longest TTL of names that are waited for
	all := h.violations(bound)
	if slices.ContainsFunc(all, func(v Violation) bool { return !h.seen[v.Text] }) {
		time.Sleep(slack) // reports of other children may be on their way
		late := h.violations(bound)
		all = slices.DeleteFunc(all, func(v Violation) bool { return !slices.Contains(late, v) })
	}
	h.lookAtKeys()
	h.mu.Lock()
	all = append(all, h.found...)
	h.found = nil
	h.mu.Unlock()
	for _, v := range all {
		h.report(v)
	}
}

// watchKeys looks for keys without an end all the time, until ended is closed.
func (h *hunt) watchKeys(ended <-chan struct{}) {
	if h.bed.shards != nil { // the ports of its servers change
		return
	}
	for {
		select {
		case <-ended:
			return
		case <-time.After(50 * time.Millisecond):
			h.lookAtKeys()
		}
	}
}

// longPause is how long this process must stand still for a pause of the machine.
const longPause = 200 * time.Millisecond

// watchPauses records pauses of the whole machine as faults, until the test ends. No lock can be
// renewed meanwhile.
func (h *hunt) watchPauses() {
	last := now()
	for h.t.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
		if n := now(); n-last > longPause {
			h.history.AddFault(Fault{Kind: "machine paused", Begin: last, End: n})
			h.mu.Lock()
			h.result.Paused += (n - last).Seconds()
			h.mu.Unlock()
		}
		last = now()
	}
}

// lookAtKeys looks for keys of Redis servers that have no end.
func (h *hunt) lookAtKeys() {
	for _, node := range h.bed.nodes {
		keys := withoutEnd(node)
		h.mu.Lock()
		for _, key := range keys {
			h.found = append(h.found, Violation{Invariant: "R1", At: now(), Text: fmt.Sprintf("the key %q has no end", key)})
		}
		h.mu.Unlock()
	}
}

// violations returns what the history shows by itself.
func (h *hunt) violations(bound time.Duration) []Violation {
	if h.peer != "" {
		return h.history.PeerViolations(bound)
	}
	return h.history.Violations(bound)
}

// report reports a violation once: as a failure, with the history around it, or as a documented
// weakness. A violation of another library is no failure of the test.
func (h *hunt) report(v Violation) {
	if h.seen[v.Text] {
		return
	}
	h.seen[v.Text] = true
	if f, weak := h.history.Weakness(v); weak {
		r := h.of(f.Kind)
		if r.Weaknesses[f.Weak]++; r.Weaknesses[f.Weak] <= 3 { // the first ones are enough to read
			h.t.Logf("documented weakness (%s): %s: %s", f.Weak, v.Invariant, v.Text)
		}
		return
	}
	r, fail := h.of(h.fault), h.t.Errorf
	if h.peer != "" {
		fail = h.t.Logf
		if !PeerPromises(v.Invariant) {
			r.NotPromised[v.Invariant]++
			return
		}
	}
	if r.Violations[v.Invariant]++; r.Violations[v.Invariant] > 3 {
		if h.peer == "" {
			h.t.Fail()
		}
		return
	}
	fail("%s is violated: %s\nseed %d on %s; the history around it:\n%s", v.Invariant, v.Text, h.result.Seed, *huntStore, h.history.Around(v.Name, v.At, 3*time.Second))
}

// require reports a violation that is seen now, unless ok.
func (h *hunt) require(ok bool, invariant, format string, args ...any) {
	if !ok {
		h.report(Violation{Invariant: invariant, At: now(), Text: fmt.Sprintf(format, args...)})
	}
}

// of returns the result of a kind of fault. Violations are attributed to the last fault.
func (h *hunt) of(kind string) *FaultResult {
	f := h.result.Faults[kind]
	if f == nil {
		f = &FaultResult{Violations: make(map[string]int), Weaknesses: make(map[string]int), NotPromised: make(map[string]int)}
		h.result.Faults[kind] = f
	}
	return f
}

// withoutEnd returns the keys of a Redis server that never expire, except counters of tokens.
func withoutEnd(node *servers.Redis) (keys []string) {
	if !node.Running() {
		return nil
	}
	value, err := node.Do("EVAL", `
		local found = {}
		for _, key in ipairs(redis.call('KEYS', '*')) do
			if redis.call('PTTL', key) == -1 and not string.find(key, ':token$') then table.insert(found, key) end
		end
		return found`, "0")
	list, _ := value.([]any)
	if err != nil || list == nil {
		return nil // hung, or a replica
	}
	for _, key := range list {
		keys = append(keys, key.(string))
	}
	return keys
}

// checkResidue checks R1 on the servers, after all clients were closed. The goroutines of clients
// are counted by the children.
func (h *hunt) checkResidue() {
	// Some stores remove what dead clients left when others use or list names.
	visit := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		client := h.bed.open()
		defer h.bed.close(client)
		err := client.Do(ctx, "n0", func(context.Context) error { return nil })
		if h.caps.Features.Has(holdfast.FeatureList) {
			for _, listErr := range client.List(ctx, "") {
				err = errors.Join(err, listErr)
			}
		}
		time.Sleep(time.Second) // Close would end a sweep
		return err
	}
	most := keptTTL + h.caps.Heartbeat + limit // rows of unused names are removed every ten seconds
	for begin := time.Now(); ; {
		err := visit()
		if err == nil {
			err = h.bed.left()
		}
		if err == nil {
			return
		}
		if time.Since(begin) > most {
			h.require(false, "R1", "%v after the last client was closed: %v", most, err)
			h.result.Residue = err.Error()
			return
		}
	}
}

// write writes the record of the run.
func (h *hunt) write() {
	h.history.mu.Lock()
	h.result.Grants, h.result.Calls = h.history.grants, h.history.failures
	h.history.mu.Unlock()
	h.mu.Lock()
	text, err := json.MarshalIndent(h.result, "", "\t")
	h.mu.Unlock()
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Logf("%s", text)
	if *huntJSON == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*huntJSON, h.result.Store+".json"), append(text, '\n'), 0o644); err != nil {
		h.t.Fatal(err)
	}
}
