package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheSumOfAllBalancesStaysTheSame(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		proof, err := run(t.Context(), t.Output(), settings{store: url, transfers: 90, ttl: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if want := "90 transfers, 3 instances: the sum is still 10000 "; !strings.HasPrefix(proof, want) {
			t.Errorf("the proof is %q, want %q", proof, want)
		}
	})
}
