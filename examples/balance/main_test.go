package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheSumOfAllBalancesStaysTheSame(t *testing.T) {
	transfers = 90
	stores.Play(t, example, "90 transfers, 3 instances: the sum is still 10000 ")
}
