package rediscore

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// calls returns how often a server ran each command since the last reset, including commands in
// scripts.
func calls(t *testing.T, server *servers.Redis) map[string]int {
	t.Helper()
	stats, err := server.Info("commandstats")
	must(t, err)
	calls := make(map[string]int)
	for name, text := range stats {
		count, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		n, err := strconv.Atoi(count)
		must(t, err)
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

func TestALockAndUnlockCostsAScriptOfFourCommandsAndOneMoreCommand(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	c := suites.Client(t, open(t, server.Addr()))
	pair := func(name string) { must(t, suites.Pair(t.Context(), c, name)) }
	pair("a") // connects and loads the scripts
	counted := 0
	for range 200 {
		server.Must("CONFIG", "RESETSTAT")
		begin := time.Now()
		pair("b")
		if time.Since(begin) > 2*time.Millisecond {
			continue // the complete script releases a lock that was held for that long
		}
		counted++
		got := calls(t, server)
		delete(got, "set") // see below
		want := map[string]int{"evalsha": 1, "time": 1, "incrby": 1, "rpush": 1, "pexpire": 1, "lrem": 1, "config|resetstat": 1}
		if !maps.Equal(got, want) {
			t.Fatalf("commands of a pair: %v, want %v", got, want)
		}
	}
	if counted == 0 {
		t.Fatal("no pair took less than 2 ms")
	}
	time.Sleep(300 * time.Millisecond) // the counter falls behind the clock
	server.Must("CONFIG", "RESETSTAT")
	pair("c")
	if got := calls(t, server); got["set"] != 1 || got["incrby"] != 1 {
		t.Errorf("commands of a pair with a counter that is behind: %v", got)
	}
}
