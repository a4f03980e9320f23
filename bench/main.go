// Command bench compares Holdfast with other lock libraries and with the minimal plain commands
// (the raw limit), on servers that it starts itself.
//
//	go run ./bench                 everything; takes some minutes
//	go run ./bench -run 'P1|P2'    some of it
//	go run ./bench -render docs/bench/bench.json -out docs/bench -docs .
//	                               measures nothing: charts and pages from an earlier run
//
// Machines differ and are noisy, so read ratios within one run. The contenders take turns for several
// rounds, and the table shows the median and the spread. The run also writes bench.json and charts into
// a folder, and with -docs its figures into the pages of the repository: see pages.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

func main() {
	if os.Getenv(takerVariable) != "" {
		takerMain()
	}
	c := defaults
	run := flag.String("run", ".*", "`pattern` of the workloads to measure, such as 'P1|P2'")
	who := flag.String("who", "", "measure only these, by `names` with commas between them")
	out := flag.String("out", filepath.Join(".bin", "bench"), "`folder` for bench.json and the charts")
	render := flag.String("render", "", "measure nothing, and use the run in this bench.json `file`")
	docs := flag.String("docs", "", "write the figures into the pages of the repository in this `folder`")
	flag.IntVar(&c.rounds, "rounds", c.rounds, "how often each contender has its turn")
	flag.DurationVar(&c.time, "time", c.time, "how long a turn is")
	flag.IntVar(&c.handoffs, "handoffs", c.handoffs, "P5 and its counterparts: hand-offs in a turn")
	flag.DurationVar(&c.window, "window", c.window, "P6: for how long to count what waiters cost")
	flag.DurationVar(&c.hold, "hold", c.hold, "P7: for how long to hold leases")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: %q is not a flag: see go run ./bench -help\n", flag.Arg(0))
		os.Exit(2)
	}
	if *who != "" {
		c.who = strings.Split(*who, ",")
	}
	var report *Report
	err := must.Try(func() {
		if *render != "" {
			report = load(*render)
		} else {
			measure(c, *run, &report)
		}
	})
	if report != nil { // even after a failure: there are figures from before it
		report.table(os.Stdout)
		err = errors.Join(err, must.Try(func() { report.save(*out) }))
	}
	must.Main("bench", func() {
		must.OK(err)
		if *docs != "" {
			for file, text := range report.updatePages(*docs) {
				must.OK(os.WriteFile(file, []byte(text), 0o644))
			}
		}
	})
}

// measure sets the report, even if a workload fails. All servers have ended when it returns.
func measure(c config, run string, report **Report) {
	pattern := must.Get(regexp.Compile("^(" + run + ")$"))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	host := new(servers.Host)
	defer host.End()
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case string: // of the host
			must.OK(errors.New(problem))
		default:
			panic(problem)
		}
	}()
	b := newBench(ctx, host, c)
	*report = &b.report
	defer b.report.summarize()
	begin := time.Now()
	b.log = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	b.run(pattern)
}

// config sets the size of each workload.
type config struct {
	rounds int
	time   time.Duration // of one turn
	who    []string      // peers to measure; nil for all

	goroutines int           // P1, P3
	clients    []int         // P4
	handoffs   int           // P5: per turn, for peers that wake waiters
	processes  int           // P6: clients
	waiters    int           // P6: of each client
	window     time.Duration // P6
	leases     int           // P7
	hold       time.Duration // P7
	few, names int           // P12
	queues     []int         // P12
}

var defaults = config{
	rounds: 5, time: time.Second,
	goroutines: 64, clients: []int{16, 64}, handoffs: 200,
	processes: 10, waiters: 100, window: 20 * time.Second,
	leases: 100_000, hold: 45 * time.Second,
	few: 1000, names: 1_000_000, queues: []int{1, 10, 100, 1000},
}

// A bench is one run of the benchmarks. Its methods fail as steps of package must do.
type bench struct {
	config
	ctx    context.Context
	t      testing.TB
	redis  *servers.Redis
	nodes  []*servers.Redis // of the quorum
	report Report
	log    func(format string, args ...any)
	id     string // of the workload that is measured now
	addrs  map[*system]string
}

var workloads = []struct {
	id, what string
	run      func(*bench)
}{
	{"P1", "many goroutines, own names", func(b *bench) { b.ownNames(redisServer, b.goroutines) }},
	{"P2", "one goroutine", func(b *bench) { b.ownNames(redisServer, 1) }},
	{"P3", "many goroutines, one name, one client", func(b *bench) { b.oneName(redisServer, shape{1, b.goroutines}) }},
	{"P4", "many clients, one name", func(b *bench) { b.manyClients(redisServer) }},
	{"P4shapes", "clients × goroutines, one name", (*bench).shapes},
	{"P5", "hand-off between processes", func(b *bench) { b.handOff(redisServer) }},
	{"P6", "what waiting costs the server", (*bench).waitersCost},
	{"P7", "many leases held", (*bench).manyHeld},
	{"P8", "quorum of five servers", (*bench).quorum},
	{"P8minute", "quorum of five servers, 50 clients on one name for a minute", (*bench).quorumMinute},
	{"P9etcd", "etcd: own names, a hot name, hand-off", func(b *bench) { b.sharedStore(etcdServer) }},
	{"P9zk", "ZooKeeper: own names, a hot name, hand-off", func(b *bench) { b.sharedStore(zooKeeper) }},
	{"P10", "SQLite: own names, hand-off", func(b *bench) { b.database(sqliteFile) }},
	{"P10mysql", "MariaDB: own names, hand-off", func(b *bench) {
		b.database(mariaDB)
		b.database(mariaDBWithoutFlushes)
	}},
	{"P10pg", "PostgreSQL: own names, hand-off", func(b *bench) { b.database(postgres) }},
	{"P11", "memory: what the core costs", func(b *bench) {
		b.ownNames(memory, 1)
		b.oneName(memory, shape{1, b.goroutines})
	}},
	{"P12", "many names, many waiters", func(b *bench) {
		b.manyNames()
		b.manyQueued()
	}},
}

// sharedStore measures a store that several processes use.
func (b *bench) sharedStore(s *system) {
	// Many goroutines come first, because they also warm up the server.
	b.ownNames(s, b.goroutines)
	b.ownNames(s, 1)
	b.oneName(s, shape{1, b.goroutines})
	b.manyClients(s)
	b.handOff(s)
}

func (b *bench) database(s *system) {
	b.ownNames(s, 1)
	b.ownNames(s, b.goroutines)
	b.handOff(s)
}

func newBench(ctx context.Context, t testing.TB, c config) *bench {
	return &bench{
		config: c, ctx: ctx, t: t, log: t.Logf, report: newReport(c), addrs: make(map[*system]string),
		redis: servers.StartRedis(t, redisOptions),
	}
}

func (b *bench) run(pattern *regexp.Regexp) {
	for _, w := range workloads {
		if pattern.MatchString(w.id) {
			b.log("%s: %s", w.id, w.what)
			b.id = w.id
			w.run(b)
		}
	}
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// A turn is the part of a round that measures one contender.
type turn struct {
	who     string
	take    func() []figure
	foreign bool // another library: its failure does not end the run
}

// A figure is a value that a turn found. The main one has no name.
type figure struct {
	name, unit string
	value      float64
}

const (
	pairs = "pairs/s"
	once  = 0 // instead of a number of parts: a single turn without a warm-up
)

// measure lets the contenders take turns (A B C A B C …), so that a cold or busy machine affects all
// of them equally, and adds a row for each of their figures. The first round is a warm-up. A round is
// the mean of its parts. Another library that fails or hangs is reported and gets no further turns.
func (b *bench) measure(work string, parts int, turns []turn) {
	warmUp, all := parts, (b.rounds+1)*parts
	if parts == once {
		warmUp, all, parts = 0, 1, 1
	}
	out := make(map[string]bool)
	sums := make(map[[2]string]float64) // of the parts of a round
	for i := range all {
		for _, t := range turns {
			if out[t.who] {
				continue
			}
			var figures []figure
			err := must.Try(func() { figures = t.take() })
			must.OK(b.ctx.Err())
			if err != nil {
				if !t.foreign {
					must.Fail("%s: %s: %w", b.id, t.who, err)
				}
				b.log("%s in round %d: %v: it gets no further turns", t.who, i/parts, err)
				out[t.who] = true
				continue
			}
			if i < warmUp {
				continue
			}
			for _, f := range figures {
				key := [2]string{t.who, f.name}
				sums[key] += f.value / float64(parts)
				if (i+1)%parts == 0 {
					row := b.row(work, t.who, f)
					row.Values = append(row.Values, sums[key])
					sums[key] = 0
				}
			}
		}
	}
}

// row returns the row of a figure, and adds it first if necessary.
func (b *bench) row(work, who string, f figure) *Row {
	if f.name != "" {
		who += ": " + f.name
	}
	row := b.report.find(b.id, work, who)
	if row.ID == "" {
		*row = Row{ID: b.id, Work: work, Who: who, Unit: f.unit}
		b.report.Rows = append(b.report.Rows, row)
	}
	return row
}

// ratio adds a row with the ratio of two rows, round by round, so that a slow moment affects both.
func (b *bench) ratio(work, who, than, note string) {
	x, y := b.report.find(b.id, work, who), b.report.find(b.id, work, than)
	row := &Row{ID: b.id, Work: work, Who: who + " / " + than + note, Unit: "×"}
	for i := range min(len(x.Values), len(y.Values)) {
		if y.Values[i] != 0 {
			row.Values = append(row.Values, x.Values[i]/y.Values[i])
		}
	}
	if len(row.Values) > 0 {
		b.report.Rows = append(b.report.Rows, row)
	}
}

// compare adds the ratios of Holdfast to the plain commands and to the best of its rivals.
func (b *bench) compare(work string, peers, rivals []peer) {
	for _, p := range peers {
		if p.limit {
			b.ratio(work, us, p.name, "")
		}
	}
	var best *Row
	for _, p := range rivals {
		row := b.report.find(b.id, work, p.name)
		if p.foreign() && len(row.Values) > 0 && (best == nil || median(row.Values) > median(best.Values)) {
			best = row
		}
	}
	if best != nil {
		b.ratio(work, us, best.Who, " (best peer)")
	}
}

// pause returns after a time, or fails when the run ends.
func (b *bench) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.ctx.Done():
		must.OK(b.ctx.Err())
	}
}
