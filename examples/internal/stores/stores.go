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

// Play plays a demonstration on SQLite and on Redis. Its proof must contain want.
func Play(t *testing.T, e fleet.Example, want string) {
	PlayOn(t, "sqlite:"+t.TempDir()+"/locks.db", e, want)
	PlayOn(t, "redis://"+servers.StartRedis(t, servers.RedisOptions{}).Addr(), e, want)
}

// PlayOn plays a demonstration on one store, in parallel to others.
func PlayOn(t *testing.T, url string, e fleet.Example, want string) {
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
