package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestEachTickIsRunByOneHost(t *testing.T) {
	stores.Play(t, func(stage *fleet.Stage) (string, error) {
		s := settings{ticks: 20, period: 200 * time.Millisecond, ttl: 2 * time.Second}
		return s.run(stage)
	}, "20 ticks, 5 hosts with clocks up to 600ms apart, 1 killed: 20 runs, one for each tick ")
}
