package rediscore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestContendedNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func(before time.Time) { base = before }(base)
		base = time.Now() // fake time is before the start of the program
		var r recentNames
		for i := range 1000 {
			r.add(fmt.Sprint("n", i))
			time.Sleep(contendedFor / 100)
		}
		if !r.has("n999") || !r.has("n950") || r.has("n899") {
			t.Errorf("the last: %v, half as old as a name may get: %v, older: %v", r.has("n999"), r.has("n950"), r.has("n899"))
		}
		if n := len(r.now) + len(r.old); n > 210 {
			t.Errorf("%d names, want those of the last two times %v", n, contendedFor)
		}
		r.remove("n999")
		if r.has("n999") {
			t.Error("a name that was removed is still there")
		}
		time.Sleep(3 * contendedFor)
		if r.has("other"); len(r.now)+len(r.old) > 0 {
			t.Errorf("%d names, want none", len(r.now)+len(r.old))
		}
	})
}
