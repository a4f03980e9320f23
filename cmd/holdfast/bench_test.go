//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/measure"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestBenchMeasuresAStore(t *testing.T) {
	s := newSite(t)
	server := servers.StartRedis(t, servers.RedisOptions{Password: "sEcReT", InMemory: true})
	url := "redis://:sEcReT@" + server.Addr()
	out := s.ok("bench", "--time", "0.1", "--goroutines", "4", "--store", url)
	for _, want := range []string{"MEASURED", "round trip, p99", "lock and unlock, 4 goroutines", "hand-off to another client, p50", " %", "redis://:***@"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if left := s.ok("ls", "--store", url); left != "" {
		t.Errorf("left behind: %s", left)
	}
	for line := range strings.Lines(s.ok("bench", "--time", "0.1", "--json")) { // of HOLDFAST_STORE
		if r := decode[measure.Result](t, line); r.ID == "" || r.Value <= 0 || r.Unit == "" {
			t.Errorf("incomplete: %s", line)
		}
	}
}

func TestBenchCanBeInterrupted(t *testing.T) {
	s := newSite(t)
	p := s.start("bench", "--time", "0.5", "--goroutines", "2")
	s.exists("locks.db")
	bench := func() []store.Lock {
		page, err := s.open().List(t.Context(), store.Query{Prefix: "holdfast:bench:"})
		if err != nil {
			t.Fatal(err)
		}
		return page.Locks
	}
	until(t, "a lock is measured", func() bool { return len(bench()) > 0 })
	p.signal(syscall.SIGINT)
	p.wantCode(exitSignal + int(syscall.SIGINT))
	if left := bench(); len(left) > 0 {
		t.Errorf("left behind: %+v", left)
	}
}
