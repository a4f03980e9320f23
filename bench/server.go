package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A host is a testing.TB for package servers in a program that is not a test. It reports a
// failure by a panic, and runs its cleanups when told to.
type host struct {
	testing.TB // for the methods that are not called here
	cleanups   []func()
}

// A failure is the value with which a host panics.
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

// redisOptions are those of servers without persistence.
var redisOptions = servers.RedisOptions{InMemory: true, Config: []string{"maxclients 20000"}}

// A usage is the number of commands that a server ran, as INFO commandstats counts them. It
// counts scripts, and also each command inside a script.
type usage map[string]float64

func usageOf(server *servers.Redis) (usage, error) {
	fields, err := server.Info("commandstats")
	if err != nil {
		return nil, err
	}
	u := make(usage)
	for name, text := range fields {
		calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		if u[strings.TrimPrefix(name, "cmdstat_")], err = strconv.ParseFloat(calls, 64); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// since returns the commands that ran after an earlier usage, without the commands of the
// measurement itself.
func (u usage) since(before usage) usage {
	diff := make(usage)
	for name, n := range u {
		if n -= before[name]; n > 0 && name != "info" {
			diff[name] = n
		}
	}
	return diff
}

// commands returns the number of all commands, including those inside scripts.
func (u usage) commands() (sum float64) {
	for _, n := range u {
		sum += n
	}
	return sum
}

// requests returns the number of scripts and pings, which are all requests of a Holdfast client.
func (u usage) requests() float64 { return u["evalsha"] + u["eval"] + u["ping"] }

// processorTimeOf returns the CPU time that a server has used.
func processorTimeOf(server *servers.Redis) (time.Duration, error) {
	fields, err := server.Info("cpu")
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(fields[name], 64)
		if err != nil {
			return 0, err
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}
