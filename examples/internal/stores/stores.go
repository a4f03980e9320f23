// Package stores runs the test of an example on SQLite, which is the default, and on a server.
package stores

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// Main is the TestMain of an example. The instances that a test starts run its main function.
func Main(m *testing.M, main func()) {
	if fleet.IsInstance() {
		main()
		return
	}
	m.Run()
}

// Play plays a demonstration on SQLite, on Redis and on further stores, in parallel. Its proof must
// contain want.
func Play(t *testing.T, e fleet.Example, want string, urls ...string) {
	urls = append(urls, "sqlite:"+t.TempDir()+"/locks.db", "redis://"+servers.StartRedis(t, servers.RedisOptions{}).Addr())
	for _, url := range urls {
		kind, _, _ := strings.Cut(url, ":")
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			proof, err := e.On(t.Context(), t.Output(), url)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(proof, want) {
				t.Errorf("the proof is %q, want %q in it", proof, want)
			}
		})
	}
}
