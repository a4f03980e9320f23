package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestOneInstanceLeadsAtATime(t *testing.T) {
	stores.Play(t, func(stage *fleet.Stage) (string, error) {
		s := settings{ttl: 2 * time.Second}
		return s.run(stage)
	}, "4 instances, one leader at a time: takeover ")
}
