package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// A host is what package servers expects of a test, for a program that is none: it fails by
// a panic, and cleans up when it is told to.
type host struct {
	testing.TB // the methods that nobody calls here
	cleanups   []func()
}

// A failure is the panic of a host.
type failure string

func (h *host) Helper()          {}
func (h *host) Failed() bool     { return false }
func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

func (h *host) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (h *host) Fatal(args ...any) { panic(failure(fmt.Sprint(args...))) }

func (h *host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (h *host) close() {
	for len(h.cleanups) > 0 {
		last := len(h.cleanups) - 1
		f := h.cleanups[last]
		h.cleanups = h.cleanups[:last]
		f()
	}
}

// startRedis starts a server without a disk, which would be a matter of its own.
func startRedis(t testing.TB) *servers.Redis {
	return servers.StartRedis(t, servers.RedisOptions{InMemory: true, Config: []string{"maxclients 20000"}})
}

// A usage is what a server spent on commands, as INFO commandstats counts it: a script as
// itself, and again each command inside of it.
type usage map[string]spent

type spent struct{ calls, micros float64 }

func usageOf(server *servers.Redis) (usage, error) {
	fields, err := server.Info("commandstats")
	if err != nil {
		return nil, err
	}
	u := make(usage)
	for name, text := range fields {
		var s spent
		for field := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseFloat(value, 64)
			switch key {
			case "calls":
				s.calls = n
			case "usec":
				s.micros = n
			}
		}
		u[strings.TrimPrefix(name, "cmdstat_")] = s
	}
	return u, nil
}

// since is what was spent after an earlier look, without the looking.
func (u usage) since(before usage) usage {
	diff := make(usage)
	for name, s := range u {
		s.calls -= before[name].calls
		s.micros -= before[name].micros
		if name != "info" && s.calls > 0 {
			diff[name] = s
		}
	}
	return diff
}

// commands are all of them, those inside of scripts too.
func (u usage) commands() (n float64) {
	for _, s := range u {
		n += s.calls
	}
	return n
}

// scripts are the runs of scripts.
func (u usage) scripts() spent {
	a, b := u["evalsha"], u["eval"]
	return spent{a.calls + b.calls, a.micros + b.micros}
}
