// Package stores runs the test of an example on SQLite, which is the default, and on a server.
package stores

import (
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
