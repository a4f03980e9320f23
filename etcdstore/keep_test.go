package etcdstore

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A fault makes a call, whose request has a mark. The request or its reply is lost, or is late until Heal.
type fault func(t *testing.T, p *faultproxy.Proxy, look *clientv3.Client, mark []byte, call func(context.Context) error)

func late(t *testing.T, p *faultproxy.Proxy, _ *clientv3.Client, mark []byte, call func(context.Context) error) {
	t.Helper()
	p.Abandon(t, has(mark), call, func() {})
}

func never(t *testing.T, p *faultproxy.Proxy, look *clientv3.Client, mark []byte, call func(context.Context) error) {
	t.Helper()
	late(t, p, look, mark, call)
	p.Cut()
}

// The lease of a record that is kept for a month must not stay for a month without the record.
func TestAKeepWithoutAReplyLeavesNoLeaseWithoutARecord(t *testing.T) {
	t.Parallel()
	keep := store.Keep{State: store.Done, For: 30 * 24 * time.Hour}
	lease := binary.AppendUvarint([]byte{1 << 3}, uint64(keep.For/time.Second)) // field 1 of the request is the TTL
	record := []byte("lock/a" + separator + string(rune(kindDone)))
	for what, f := range map[string]struct {
		mark  []byte
		occur fault
	}{
		"the reply to the lease is lost":          {lease, lose},
		"the request for the lease is lost":       {lease, never},
		"the reply to the write is lost":          {record, lose},
		"the request for the write is lost":       {record, never},
		"the write arrives after the caller left": {record, late},
	} {
		for then, end := range map[string]func(t *testing.T, far *Store, id store.ID){
			"released again": func(t *testing.T, far *Store, id store.ID) {
				eventually(t, func(ctx context.Context) (int, error) { return 0, far.Release(ctx, "a", id, keep) })
			},
			"left": func(t *testing.T, far *Store, id store.ID) {
				eventually(t, func(ctx context.Context) (int, error) { return 0, far.Leave(ctx, "a", id) })
			},
			"closed": func(*testing.T, *Store, store.ID) {},
		} {
			t.Run(what+", "+then, func(t *testing.T) {
				t.Parallel()
				proxy, far, _, look := behind(t)
				req := suites.Request("a")
				must(t, far, req, 0)
				f.occur(t, proxy, look, f.mark, func(ctx context.Context) error {
					return far.Release(ctx, "a", req.ID, keep)
				})
				proxy.Heal()
				eventually(t, func(ctx context.Context) (*snapshot, error) { return far.look(ctx, claimKey{"b", store.NewID()}) })
				end(t, far, req.ID)
				far.Close()
				keys, leases := 0, 0
				left := etcdtest.Residue(t, look)
				for _, one := range left {
					if strings.HasPrefix(one, "lease ") {
						leases++
					} else {
						keys++
					}
				}
				if leases != keys || then == "released again" && keys != 1 {
					t.Errorf("left on the server: %q", left)
				}
			})
		}
	}
}

// While one call settles a Keep, another one may have settled it too, and have sent the Keep again.
func TestSettlingAKeepDoesNotForgetALaterOne(t *testing.T) {
	t.Parallel()
	s := opened(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	key, later := claimKey{"a", store.NewID()}, unsettled{lease: leased(t, s, time.Minute).id}
	grant := record{name: "a", kind: kindExclusive, mod: 1}
	s.unsettled[key] = unsettled{lease: leased(t, s, time.Minute).id, grant: grant, kept: s.keys.key("a", kindDone, 1)}
	s.kv = &preempted{KVClient: s.kv, key: s.keys.of(&grant), other: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unsettled[key] = later
	}}
	if kept, err := s.settle(suites.Limited(t), key); kept || err != nil {
		t.Fatalf("kept %v, error %v", kept, err)
	}
	if s.unsettled[key] != later {
		t.Error("the later Keep is forgotten, so its lease stays")
	}
}

// The next call of a name waits for Leave.
func TestLeaveDoesNotWaitUntilTheKeepsOfOthersAreSettled(t *testing.T) {
	t.Parallel()
	const trip, n = 100 * time.Millisecond, 100
	proxy, far, _, look := behind(t)
	for range n {
		far.unsettled[claimKey{"other", store.NewID()}] = unsettled{lease: leased(t, far, time.Minute).id}
	}
	proxy.ToClient.Delay(trip)
	begin := time.Now()
	noError(t, far.Leave(suites.Limited(t), "a", store.NewID()))
	if took := time.Since(begin); took > n*trip/10 {
		t.Errorf("Leave took %v", took)
	}
	suites.Eventually(t, "there are leases of Keeps", func() bool { return len(etcdtest.Residue(t, look)) == 0 })
}

// After an outage there may be many Keeps to settle. Close needs its time for the leases that only this handle knows.
func TestCloseDoesNotWaitUntilTheKeepsOfOthersAreSettled(t *testing.T) {
	t.Parallel()
	const trip, n = 100 * time.Millisecond, 1000 // for 32 at a time, longer than Close may take
	proxy, far, _, look := behind(t)
	far.recycle(t.Context(), leased(t, far, time.Minute))
	for i := range n {
		far.unsettled[claimKey{"other", store.NewID()}] = unsettled{lease: int64(i) + 1} // never got to the server
	}
	proxy.ToClient.Delay(trip)
	suites.Leave(t, far, suites.Request("a"))
	far.Close()
	nothingLeft(t, look)
}

// A kept record may live for weeks. Nothing would end its lease if the record went first.
func TestABreakWithoutAReplyLeavesNoLeaseOfAKeptRecord(t *testing.T) {
	t.Parallel()
	for what, occur := range map[string]fault{"the reply is lost": lose, "the request is lost": never} {
		proxy, far, near, look := behind(t)
		req := suites.Request("a")
		must(t, near, req, 0)
		if err := near.Release(suites.Limited(t), "a", req.ID, store.Keep{State: store.Done, For: 30 * 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		near.Close()
		leases, err := look.Leases(suites.Limited(t))
		if err != nil || len(leases.Leases) != 1 {
			t.Fatalf("%s: leases %v, error %v, want the one of the record", what, leases, err)
		}
		mark := binary.AppendUvarint([]byte{1 << 3}, uint64(leases.Leases[0].ID)) // field 1 of the request is the lease
		occur(t, proxy, look, mark, func(ctx context.Context) error { return far.Break(ctx, "a", req.ID) })
		proxy.Heal()
		eventually(t, func(ctx context.Context) (int, error) {
			err := far.Break(ctx, "a", req.ID)
			if errors.Is(err, store.ErrNotHeld) {
				err = nil
			}
			return 0, err
		})
		far.Close()
		t.Logf("%s, and Break is repeated", what)
		nothingLeft(t, look)
	}
}
