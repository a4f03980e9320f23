package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestManyRequestsCreateOneUser(t *testing.T) {
	const want = "100 requests, 3 instances, 1 killed: 1 row "
	demo := func(stage *fleet.Stage) (string, error) {
		s := settings{requests: 100, ttl: 2 * time.Second}
		return s.run(stage)
	}
	stores.Play(t, demo, want)
	t.Run("postgres", func(t *testing.T) {
		stores.PlayOn(t, servers.StartPostgres(t, servers.PostgresOptions{}).URL(), demo, want)
	})
}
