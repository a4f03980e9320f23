package main

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestEachTickIsRunByOneHost(t *testing.T) {
	period = 200 * time.Millisecond
	stores.Play(t, example, "20 ticks, 5 hosts with clocks up to 600ms apart, 1 killed: 20 runs, one for each tick ")
}
