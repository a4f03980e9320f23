package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheWriteOfASuspendedHolderIsRefused(t *testing.T) {
	stores.Play(t, func(stage *fleet.Stage) (string, error) {
		s := settings{ttl: 2 * time.Second}
		return s.run(stage)
	}, "the file has 6 of 6 lines of the new holder (without the fence: 3 of 6, corrupt)")
}
