package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestManyRequestsCreateOneUser(t *testing.T) {
	requests = 60
	postgres := servers.StartPostgres(t, servers.PostgresOptions{}).URL()
	stores.Play(t, example, "60 requests, 3 instances, 1 killed: 1 row ", postgres)
}
