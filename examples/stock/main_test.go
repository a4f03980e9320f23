package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheStockIsNeverOversold(t *testing.T) {
	items, buyers = 12, 90
	stores.Play(t, example, "12 items, 90 buyers, 3 instances: 12 orders, 1 write of a suspended holder refused ")
}
