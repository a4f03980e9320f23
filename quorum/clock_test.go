package quorum_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
)

func TestNodeWhoseClockWasSetDoesNotCountBeforeTheLargestTTLIsOver(t *testing.T) {
	for _, delay := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{RestartDelay: delay})
			nodes[0].set(down, nil)
			wantGranted(t, q, true, "by two of three nodes")
			nodes[1].setClock()
			wantGranted(t, q, false, "with the vote of a node whose clock was set")
			time.Sleep(quorum.DefaultRestartDelay * 102 / 100)
			wantGranted(t, q, true, "after all older leases have ended")
		})
	}
}

// While a host is suspended, its monotonic clock may stand still. All other clocks seem to jump then.
func TestNodesCountAfterTheHostOfTheClientWasSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, time.Hour, quorum.Options{})
		wantGranted(t, q, true, "at first")
		for _, n := range nodes {
			n.setClock()
			time.Sleep(100 * time.Millisecond)
		}
		granted(t, q) // it sees the jumps one after the other
		wantGranted(t, q, true, "after the clocks of all nodes have jumped together")
	})
}

// A client that has just started does not know whether the clock was set a moment ago.
func TestNodeWhoseClockIsFarAheadDoesNotCountAtFirst(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{time.Minute: false, -time.Minute: true, time.Second / 2: true} {
		run(t, fmt.Sprint(ahead), func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{}, 0, ahead)
			nodes[0].set(down, nil)
			wantGranted(t, q, want, "at first")
			time.Sleep(quorum.DefaultRestartDelay * 102 / 100)
			wantGranted(t, q, true, "after all older leases have ended")
		})
	}
}
