package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/redisstore" // redis: URLs
	"github.com/holdfast-lock/holdfast/store"
)

// The documentation of package inspect states how much load an open inspector causes.
func TestTheLoadOfAnOpenInspectorIsBounded(t *testing.T) {
	const (
		locks = 1000
		every = 2 * time.Second
		looks = 4 * time.Second
	)
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	st, err := store.Open(t.Context(), "redis://"+server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := newSiteOn(t, st, inspect.Every(every))
	for i := range locks {
		s.lock(fmt.Sprintf("order:%d", i))
	}
	for range 3 { // more browsers cause no more load
		x := newTab(t)
		x.visit(s.base)
		x.shows(fmt.Sprint(locks))
	}
	scripts, commands, cpu := load(t, server)
	begin := time.Now()
	time.Sleep(looks)
	moreScripts, moreCommands, moreCPU := load(t, server)
	seconds := time.Since(begin).Seconds()
	rate := float64(moreScripts-scripts) / seconds
	t.Logf("%d locks, 3 browsers: %.0f scripts/s, which run %.0f commands/s, %.1f %% of a CPU", locks, rate,
		float64(moreCommands-commands)/seconds, 100*(moreCPU-cpu)/seconds)
	// One script for each lock, and some more, with each listing. The first one may just have begun.
	if most := 1.2 * locks * (1 + seconds/every.Seconds()); float64(moreScripts-scripts) > most || rate == 0 {
		t.Errorf("%d scripts in %.1f s, want at most %.0f", moreScripts-scripts, seconds, most)
	}
}

// load returns how many scripts a server has run, how many commands including those in scripts,
// and its CPU time in seconds.
func load(t *testing.T, server *servers.Redis) (scripts, commands int, cpu float64) {
	t.Helper()
	stats, err := server.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	for command, value := range stats {
		var n int
		fmt.Sscanf(value, "calls=%d", &n)
		commands += n
		if strings.HasPrefix(command, "cmdstat_eval") {
			scripts += n
		}
	}
	used, err := server.Info("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"used_cpu_sys", "used_cpu_user"} {
		var seconds float64
		fmt.Sscan(used[key], &seconds)
		cpu += seconds
	}
	return scripts, commands, cpu
}
