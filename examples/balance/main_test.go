package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheSumOfAllBalancesStaysTheSame(t *testing.T) {
	stores.Play(t, func(stage *fleet.Stage) (string, error) {
		s := settings{transfers: 90, ttl: 2 * time.Second}
		return s.run(stage)
	}, "90 transfers, 3 instances: the sum is still 10000 ")
}
