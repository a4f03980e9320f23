package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestOneInstanceLeadsAtATime(t *testing.T) {
	stores.Play(t, example, "4 instances, one leader at a time: takeover ")
}
