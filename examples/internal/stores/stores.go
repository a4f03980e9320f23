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

// ForEach runs a test once per kind of store, in parallel, with the URL of a new store.
func ForEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+t.TempDir()+"/locks.db")
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, "redis://"+servers.StartRedis(t, servers.RedisOptions{}).Addr())
	})
}

// Play plays a demonstration on each kind of store. Its proof must contain want.
func Play(t *testing.T, e fleet.Example, want string) {
	ForEach(t, func(t *testing.T, url string) { PlayOn(t, url, e, want) })
}

// PlayOn plays a demonstration on one store.
func PlayOn(t *testing.T, url string, e fleet.Example, want string) {
	proof, err := e.On(t.Context(), t.Output(), url)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(proof, want) {
		t.Errorf("the proof is %q, want %q in it", proof, want)
	}
}
