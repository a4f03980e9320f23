package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestTheWriteOfASuspendedHolderIsRefused(t *testing.T) {
	stores.Play(t, example, "the file has 6 of 6 lines of the new holder (without the fence: 3 of 6, corrupt)")
}
