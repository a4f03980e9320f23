// Command bench compares Holdfast with other lock libraries and with the minimal plain commands
// (the raw limit), on servers that it starts itself.
//
//	go run ./bench                 everything; takes some minutes
//	go run ./bench -run 'P1|P2'    some of it
//	go run ./bench -render docs/bench/bench.json -out docs/bench -docs .
//	                               measures nothing: charts and pages from an earlier run
//
// Machines differ and are noisy, so every target is a ratio within one run. The candidates take
// turns (A B C A B C …) for several rounds, and the table shows the median and the spread. The
// run also writes bench.json and charts into a folder, and with -docs its figures into the pages
// of the repository: see pages.go.
//
// There is one file per workload; peers.go has the candidates.
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
	"runtime/pprof"
	"strings"
	"time"
)

func main() {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(childMain(role))
	}
	c := defaults
	run := flag.String("run", ".", "`pattern` of the targets to measure, such as 'P1|P2'")
	who := flag.String("who", "", "measure only these, by `names` with commas between them")
	out := flag.String("out", filepath.Join(".bin", "bench"), "`folder` for bench.json and the charts")
	render := flag.String("render", "", "measure nothing, and use the run in this bench.json `file`")
	docs := flag.String("docs", "", "write the figures into the pages of the repository in this `folder`")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to a `file`")
	flag.IntVar(&c.rounds, "rounds", c.rounds, "how often each candidate has its turn")
	flag.DurationVar(&c.time, "time", c.time, "how long a turn is")
	flag.IntVar(&c.handoffs, "handoffs", c.handoffs, "P5 and its counterparts: hand-offs in a turn")
	flag.DurationVar(&c.window, "window", c.window, "P6: for how long to count what waiters cost")
	flag.DurationVar(&c.hold, "hold", c.hold, "P7: for how long to hold leases")
	flag.IntVar(&c.leases, "leases", c.leases, "P7: how many leases to hold")
	flag.IntVar(&c.names, "names", c.names, "P12: how many names are many")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: %q is not a flag: see go run ./bench -help\n", flag.Arg(0))
		os.Exit(2)
	}
	if *who != "" {
		c.who = strings.Split(*who, ",")
	}
	var report *Report
	var err error
	if *render != "" {
		report, err = load(*render)
	} else {
		report, err = measure(c, *run, *profile)
	}
	if report != nil { // even after a failure: there are figures from before it
		err = errors.Join(err, report.table(os.Stdout), report.save(*out))
	}
	if err == nil && *docs != "" {
		err = report.updatePages(*docs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs the workloads. It returns only after all servers and child processes have ended.
// The report is not nil if there are figures, even if a workload failed.
func measure(c config, run, profile string) (report *Report, err error) {
	pattern, err := regexp.Compile("^(" + run + ")$")
	if run == "." {
		pattern, err = regexp.MustCompile(""), nil
	}
	if err != nil {
		return nil, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	h := new(host)
	defer h.close()
	defer func() {
		if f, ok := recover().(failure); ok {
			err = fmt.Errorf("%s", f)
		}
	}()
	b, err := newBench(h, c)
	if err != nil {
		return nil, err
	}
	report = &b.report
	begin := time.Now()
	b.log = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	return report, b.run(ctx, pattern)
}
