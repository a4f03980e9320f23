package faults

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

// A wallClock is the wall clock of servers, which a test can set.
type wallClock struct {
	t    testing.TB
	file string
}

// newClock builds the library that shifts clocks. The options make servers use it.
func newClock(t testing.TB) (*wallClock, servers.RedisOptions) {
	t.Helper()
	dir := t.TempDir()
	library := filepath.Join(dir, "clock.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v; the race detector needs a C compiler too\n%s", err, out)
	}
	c := &wallClock{t, filepath.Join(dir, "clock")}
	c.shift(0)
	return c, servers.RedisOptions{Env: []string{"LD_PRELOAD=" + library, "FAULTS_CLOCK=" + c.file}}
}

// shift sets how far the clock is off.
func (c *wallClock) shift(by time.Duration) {
	c.t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	// The file is changed in place, because the servers have mapped it.
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds())), 0); err != nil {
		c.t.Fatal(err)
	}
}

// onBoth runs a test on a single server and a group with Sentinels, all with a clock that can
// be set.
func onBoth(t *testing.T, test func(t *testing.T, b *bed, clock *wallClock)) {
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		clock, opts := newClock(t)
		test(t, single(t, opts), clock)
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		clock, opts := newClock(t)
		test(t, sentinel(t, opts), clock)
	})
}

// wrong is how far the clocks of these tests are off.
const wrong = 60 * time.Second

func TestAServersClockThatJumpsAheadEndsLeasesEarlyAndTheTokenTellsThemApart(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bed, clock *wallClock) {
		h, resource := new(History), new(counter)
		client, other := b.open(), b.open()
		_, next := grantedTwice(t, h, resource, client, wrong/2, func() *holdfast.Client { // half a minute early
			clock.shift(wrong)
			return other
		})
		next.mustUnlock(t)

		// Set the clock back: tokens must not depend on what it showed.
		clock.shift(0)
		late := b.open() // a client that has not seen the earlier time
		again := record(h).must(t, late, "n", wrong/2)
		check(t, resource.add(again.Token()))
		again.mustUnlock(t)
		check(t, h.CheckTokens())
		check(t, resource.check())
		b.clean(soon, client, other, late)
	})
}

func TestAServersClockThatJumpsBackEndsLeasesLateAndTokensStillGrow(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bed, clock *wallClock) {
		h, resource := new(History), new(counter)
		client := b.open()
		holder := spawn(t, h, order{Role: "hold", URLs: []string{b.url}, Names: []string{"n"}, TTL: shortTTL, Who: "killed"}, nil)
		holder.hear("held")
		first := record(h).must(t, client, "other", longTTL)
		check(t, resource.add(first.Token()))
		holder.kill()
		clock.shift(-wrong)

		// This shows the weakness: the lock of a dead holder lasts a minute longer.
		ms, _ := strconv.ParseInt(fmt.Sprint(b.primary().Must("PTTL", "holdfast:lock:n")), 10, 64)
		if left := time.Duration(ms) * time.Millisecond; left < wrong/2 {
			t.Errorf("the late end was not shown: %v left of a TTL of %v", left, shortTTL)
		}
		// A lease survives meanwhile, and later leases have higher tokens.
		check(t, first.Renew(t.Context()))
		first.mustUnlock(t)
		late := b.open() // a client that has not seen the earlier time
		for _, c := range []*holdfast.Client{client, late, client, late} {
			next := record(h).must(t, c, "other", longTTL)
			check(t, resource.add(next.Token()))
			next.mustUnlock(t)
		}
		clock.shift(0)
		record(h).must(t, client, "n", longTTL).mustUnlock(t)
		check(t, h.Check())
		check(t, resource.check())
		b.clean(soon, client, late)
	})
}
