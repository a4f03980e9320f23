package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheStockIsNeverOversold(t *testing.T) {
	stores.Play(t, func(stage *fleet.Stage) (string, error) {
		s := settings{items: 12, buyers: 90, ttl: 2 * time.Second}
		return s.run(stage)
	}, "12 items, 90 buyers, 3 instances: 12 orders, 1 write of a suspended holder refused ")
}
