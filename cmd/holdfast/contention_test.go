//go:build unix

package main

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
)

// The processes read and write a counter in a file in two steps.
func TestTwentyProcessesLoseNoUpdate(t *testing.T) {
	const processes, times, runs = 20, 25, 5
	s := newPlainSite(t)
	s.write("count", "0\n")
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do read n <"$DIR/count"; echo $((n+1)) >"$DIR/count"; i=$((i+1)); done`, times/runs)
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			for range runs {
				p := s.command("run", "counter", "-c", script)
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
