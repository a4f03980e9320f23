package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Checks of several stores.
var (
	// Identity never reports a problem by itself. A quorum can compare the identities of its stores.
	Identity = New("store.identity", store.LevelNote,
		"two hosts whose stores have different identities do not exclude each other",
		"run doctor on each host and compare; if they differ, correct the URL of the store")

	clockCheck = New("store.clock", store.LevelWarning,
		"leases do not depend on the clock of this host, but one of the two clocks is wrong: tokens start from the store's clock after a loss of data, times in logs cannot be compared, and a correction of the store's clock ends or prolongs leases",
		"synchronize the clocks of this host and of the servers with NTP, slewing and not stepping")

	spreadCheck = New("store.clock-spread", store.LevelWarning,
		"a failover to a server whose clock differs ends leases early or late, and may give lower tokens than before",
		"synchronize the clocks of all servers with NTP")
)

// Identify returns the finding about the identity of a store: a text that is the same on all hosts.
func Identify(format string, args ...any) store.Finding { return Identity.OK(format, args...) }

// clockSamples is how often a clock is read. The reading with the shortest round trip is used.
const clockSamples = 5

// Clock compares the clock of a server with that of this host, and returns how far it is ahead.
func Clock(ttl time.Duration, read func() (time.Time, error)) (finding store.Finding, ahead time.Duration, ok bool) {
	var best time.Duration
	for i := range clockSamples {
		begin := time.Now()
		server, err := read()
		if err != nil {
			return clockCheck.Unknown(err), 0, false
		}
		if took := time.Since(begin); i == 0 || took < best {
			best, ahead = took, server.Sub(begin.Add(took/2))
		}
	}
	return ClockAt(ttl, ahead, best/2), ahead, true
}

// ClockAt returns the finding about a server whose clock is ahead of the clock of this host.
// PlusMinus is the error of the measurement.
func ClockAt(ttl, ahead, plusMinus time.Duration) store.Finding {
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	found := fmt.Sprintf("the server's clock is %v %s that of this host, ± %v",
		ahead.Abs().Round(10*time.Microsecond), side, plusMinus.Round(10*time.Microsecond))
	wrong := fmt.Sprintf("; that is more than a tenth of the TTL of %v", ttl)
	return clockCheck.Finding(ahead.Abs()-plusMinus > ttl/10, found, wrong)
}

// ClockUnneeded returns the finding about a store that depends on no clock, or on that of this host.
func ClockUnneeded(why string) store.Finding { return clockCheck.OK("%s", why) }

// ClockUnknown returns the finding that the clock could not be read.
func ClockUnknown(err error) store.Finding { return clockCheck.Unknown(err) }

// Spread compares the clocks of several servers. Ahead is how far each is ahead of that of this host.
func Spread(ttl time.Duration, ahead []time.Duration) store.Finding {
	d := slices.Max(ahead) - slices.Min(ahead)
	if d > ttl/10 {
		return spreadCheck.Bad("the clocks of %d servers differ by up to %v, more than a tenth of the TTL of %v", len(ahead), d.Round(time.Millisecond), ttl)
	}
	return spreadCheck.OK("the clocks of %d servers differ by up to %v", len(ahead), d.Round(10*time.Microsecond))
}
