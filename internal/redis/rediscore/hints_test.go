package rediscore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Names that others want must not stay in memory until they are taken again.
func TestContendedNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func(before time.Time) { base = before }(base)
		base = time.Now() // fake time is before the start of the program
		var h hints
		for i := range 4 * maxNames {
			h.setContended(fmt.Sprint("n", i), true)
		}
		h.setContended("last", true)
		if n := len(h.contended.m); n > maxNames {
			t.Errorf("%d names, want %d at most", n, maxNames)
		}
		if !h.isContended("last") {
			t.Error("the last name does not count as contended")
		}
		time.Sleep(contendedFor)
		if h.isContended("last") {
			t.Errorf("a name counts as contended after %v", contendedFor)
		}
	})
}
