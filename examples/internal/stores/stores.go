// Package stores runs the test of an example on SQLite, which is the default, and on a server.
package stores

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// Main is the TestMain of an example. The instances that a test starts run the main function of
// the example.
func Main(m *testing.M, main func()) {
	if _, ok := fleet.IsInstance(); ok {
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
func Play(t *testing.T, demo fleet.Demo, want string) {
	ForEach(t, func(t *testing.T, url string) { PlayOn(t, url, demo, want) })
}

// PlayOn plays a demonstration on one store.
func PlayOn(t *testing.T, url string, demo fleet.Demo, want string) {
	proof, err := fleet.Play(t.Context(), t.Output(), url, demo)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(proof, want) {
		t.Errorf("the proof is %q, want %q in it", proof, want)
	}
}
