package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A wallClock is the wall clock of servers, which a test can set.
type wallClock struct {
	t    testing.TB
	file string
}

// newClock builds the library that shifts clocks, and returns options with which servers use it.
func newClock(t testing.TB) (*wallClock, servers.RedisOptions) {
	t.Helper()
	dir := t.TempDir()
	library := filepath.Join(dir, "clock.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v; the race detector needs a C compiler too\n%s", err, out)
	}
	c := &wallClock{t, filepath.Join(dir, "clock")}
	c.shift(0)
	for name, mode := range map[string]os.FileMode{c.file: 0o644, dir: 0o755, filepath.Dir(dir): 0o711} { // PostgreSQL has another user
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	return c, servers.RedisOptions{Env: []string{"LD_PRELOAD=" + library, "FAULTS_CLOCK=" + c.file}}
}

// shift sets how far the clock is wrong.
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

// wrong is how far the clocks of these tests are wrong.
const wrong = 60 * time.Second

func TestTheClockOfAZooKeeperServerAffectsOnlyLocksWithoutASession(t *testing.T) {
	t.Parallel()
	const session = 4 * time.Second
	clock, opts := newClock(t)
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Env: opts.Env})
	url := fmt.Sprintf("zk://%s?session=%v", server.Addr(), session)
	h := new(History)
	client, other := openURL(t, url), openURL(t, url)
	lease := record(h).must(t, client, "n", shortTTL)
	waiting := record(h).later(t, t.Context(), other, "n", shortTTL)
	for _, by := range []time.Duration{wrong, -wrong} {
		clock.shift(by)
		end := time.Now().Add(session + shortTTL)
		eventually(t, "the lease is renewed for longer than the session lasts", func() error {
			if lease.Deadline().Before(end) {
				return fmt.Errorf("%v is missing", end.Sub(lease.Deadline()))
			}
			return nil
		})
		check(t, lease.Err())
		select {
		case <-waiting.done:
			t.Fatalf("the waiter did not wait: %v", waiting.err)
		default:
		}
	}
	lease.mustUnlock(t)
	waiting.get(soon).mustUnlock(t)

	// This shows the weakness: a grant that remained when its store was closed ends early.
	clock.shift(0)
	url = fmt.Sprintf("zk://%s?session=%v", server.Addr(), wrong)
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	request := store.Request{Name: "left", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: wrong / 2, Tokens: 1}
	answer, err := s.Acquire(t.Context(), request)
	check(t, err)
	check(t, s.Close())
	if _, err := openURL(t, url).TryLock(t.Context(), "left"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	clock.shift(wrong)
	late := openURL(t, url) // a client that has not seen the earlier time
	next := record(h).later(t, t.Context(), late, "left", longTTL).get(soon)
	if next.Token() <= answer.Token {
		t.Errorf("token %d after %d", next.Token(), answer.Token)
	}
	next.mustUnlock(t)
	check(t, h.Check())
}
