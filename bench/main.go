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
