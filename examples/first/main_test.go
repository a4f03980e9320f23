package main

import "testing"

func TestTheExampleRuns(t *testing.T) {
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
}
