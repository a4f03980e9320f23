package rediscore

import (
	"flag"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

var names = flag.Int("names", 50_000, "number of names to lock and release")

// calls returns how often a server ran each command since the last reset, including commands in
// scripts.
func calls(t *testing.T, server *servers.Redis) map[string]int {
	t.Helper()
	stats, err := server.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]int)
	for name, text := range stats {
		count, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

func TestALockAndUnlockCostsAScriptOfFourCommandsAndOneMoreCommand(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	c, err := holdfast.New(open(t, server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pair := func(name string) {
		lease, err := c.Lock(t.Context(), name)
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
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

func TestManyNamesLeaveNothingBehind(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	c, err := holdfast.New(open(t, server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lock := func(from, to int) {
		var wg sync.WaitGroup
		const workers = 64
		for w := range workers {
			wg.Go(func() {
				for i := from + w; i < to; i += workers {
					lease, err := c.Lock(t.Context(), fmt.Sprint("name:", i))
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	memory := func() int {
		server.Must("MEMORY", "PURGE")
		info, err := server.Info("memory")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(info["used_memory"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	lock(0, 1000)
	before := memory()
	lock(1000, 1000+*names)
	after := memory()
	t.Logf("%d names: %d bytes before, %d after", *names, before, after)
	if after > before+1<<20 {
		t.Errorf("%d bytes more after %d names", after-before, *names)
	}
	if left := server.Must("KEYS", "*").([]any); len(left) != 1 || left[0] != "holdfast:token" {
		t.Errorf("keys left: %v", left)
	}
}
