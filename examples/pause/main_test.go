package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheWriteOfASuspendedHolderIsRefused(t *testing.T) {
	stores.ForEach(t, func(t *testing.T, url string) {
		proof, err := run(t.Context(), t.Output(), settings{store: url, ttl: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if want := "the file has 6 of 6 lines of the new holder (without the fence: 3 of 6, corrupt)"; !strings.HasSuffix(proof, want) {
			t.Errorf("the proof is %q, want it to end with %q", proof, want)
		}
	})
}
