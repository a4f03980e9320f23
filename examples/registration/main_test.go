package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestManyRequestsCreateOneUser(t *testing.T) {
	test := func(t *testing.T, url string) {
		proof, err := run(t.Context(), t.Output(), settings{store: url, requests: 100, ttl: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if want := "100 requests, 3 instances, 1 killed: 1 row "; !strings.HasPrefix(proof, want) {
			t.Errorf("the proof is %q, want %q", proof, want)
		}
	}
	stores.ForEach(t, test)
	t.Run("postgres", func(t *testing.T) { test(t, servers.StartPostgres(t, servers.PostgresOptions{}).URL()) })
}
