package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheStockIsNeverOversold(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		proof, err := run(t.Context(), t.Output(), settings{store: url, items: 12, buyers: 90, ttl: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if want := "12 items, 90 buyers, 3 instances: 12 orders, 1 write of a suspended holder refused "; !strings.HasPrefix(proof, want) {
			t.Errorf("the proof is %q, want %q", proof, want)
		}
	})
}
