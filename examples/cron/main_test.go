package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestEachTickIsRunByOneHost(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		proof, err := run(t.Context(), t.Output(), settings{store: url, ticks: 20, period: 200 * time.Millisecond, ttl: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if want := "20 ticks, 5 hosts with clocks up to 600ms apart, 1 killed: 20 runs, one for each tick "; !strings.HasPrefix(proof, want) {
			t.Errorf("the proof is %q, want %q", proof, want)
		}
	})
}
