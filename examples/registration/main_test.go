package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestManyRequestsCreateOneUser(t *testing.T) {
	requests = 60
	const want = "60 requests, 3 instances, 1 killed: 1 row "
	stores.Play(t, example, want)
	stores.PlayOn(t, servers.StartPostgres(t, servers.PostgresOptions{}).URL(), example, want)
}
