//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The processes read and write a counter in a file in two steps. They are built without the race
// detector, with which a process needs three times as long to start.
func TestTwentyProcessesLoseNoUpdate(t *testing.T) {
	const processes, times, runs = 20, 25, 5
	s := newSite(t)
	plain := s.path("holdfast")
	if err := build(plain); err != nil {
		t.Fatal(err)
	}
	s.write("count", "0\n")
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do read n <"$DIR/count"; echo $((n+1)) >"$DIR/count"; i=$((i+1)); done`, times/runs)
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			for range runs {
				p := s.command("run", "counter", "-c", script)
				p.cmd.Path = plain
				if err := p.cmd.Run(); err != nil {
					t.Errorf("%v: %s", err, &p.err)
					return
				}
			}
		})
	}
	all.Wait()
	if got := s.read("count"); got != strconv.Itoa(processes*times)+"\n" {
		t.Errorf("count is %q, want %d", got, processes*times)
	}
}

func TestWaitersGetTheLockInOrderOfArrival(t *testing.T) {
	const n = 8
	s := newSite(t)
	holder := s.hold("a")
	var want strings.Builder
	var waiters []*process
	for i := range n {
		waiters = append(waiters, s.start("run", "a", "-c", fmt.Sprintf(`echo %d >>"$DIR/order"`, i)))
		s.waiting("a", i+1)
		fmt.Fprintln(&want, i)
	}
	s.write("go", "")
	holder.wantCode(0)
	for _, p := range waiters {
		p.wantCode(0)
	}
	if got := s.read("order"); got != want.String() {
		t.Errorf("order: %q", strings.Fields(got))
	}
}
