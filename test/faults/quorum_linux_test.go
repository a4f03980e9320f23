package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// quorumNodes is the size of a quorum that survives the loss of two nodes.
const quorumNodes = 5

// quorumBed returns a bed with a quorum of nodes that vote right after their start.
func quorumBed(t testing.TB, n int, opts servers.RedisOptions) *bed {
	t.Helper()
	return quorumOf(t, servers.StartRedisNodes(t, n, opts), "off")
}

func quorumOf(t testing.TB, nodes []*servers.Redis, restart string) *bed {
	t.Helper()
	b := &bed{t: t, nodes: nodes}
	b.url = "quorum+redis://" + strings.Join(b.addrs(), ",") + "?restart=" + restart
	return b
}

// votes waits until the given number of nodes have a vote for a name.
func (b *bed) votes(name string, want int) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("%d nodes have a vote for %q", want, name), func() error {
		n := 0
		for _, node := range b.nodes {
			exists, err := node.Do("EXISTS", lockKey(b, name))
			if err != nil {
				return err
			}
			n += int(exists.(int64))
		}
		if n != want {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
}

// busy opens clients that add to a resource until stop is called. Stop checks their updates.
func (b *bed) busy(h *History, resource *counter, clients int, open func(...holdfast.Option) *holdfast.Client) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	var opened []*holdfast.Client
	for range clients {
		client := open()
		opened = append(opened, client)
		all.Go(func() {
			for ctx.Err() == nil {
				if err := addOnce(b.t.Context(), h, client, resource, b.short()); err != nil {
					b.t.Errorf("L: %v", err)
					return
				}
			}
		})
	}
	return func() {
		b.t.Helper()
		cancel()
		all.Wait()
		check(b.t, h.Check())
		check(b.t, resource.check())
		b.clean(limit, opened...)
	}
}

// progress waits until a resource has been updated several more times.
func progress(t testing.TB, resource *counter, what string) {
	t.Helper()
	want := resource.updates() + 20
	eventually(t, what, func() error {
		if resource.updates() < want {
			return errNotYet
		}
		return nil
	})
}

func TestAQuorumGoesOnWhileAMinorityIsKilledHangsOrRestarts(t *testing.T) {
	t.Parallel()
	b := quorumBed(t, quorumNodes, servers.RedisOptions{})
	h, resource := new(History), new(counter)
	holder := b.open()
	lease := record(h).must(t, holder, "held", shortTTL)
	over := lease.watch()
	stop := b.busy(h, resource, 4, b.open)
	progress(t, resource, "all nodes are up")
	b.nodes[0].Kill()
	b.nodes[1].Kill()
	progress(t, resource, "two of five nodes are down")
	b.nodes[0].Restart()
	b.nodes[1].Restart()
	progress(t, resource, "they are back with their data")
	b.votes("held", quorumNodes) // votes that have expired are restored by the next renewal
	b.nodes[2].Stop()
	b.nodes[3].Stop()
	progress(t, resource, "two of five nodes hang")
	time.Sleep(2 * shortTTL) // longer than all leases
	progress(t, resource, "they hang for longer than a TTL")
	b.nodes[2].Continue()
	b.nodes[3].Continue()
	progress(t, resource, "they go on")
	lease.mustLive(t, over)
	lease.mustUnlock(t)
	b.close(holder)
	stop()
}

func TestAQuorumThatIsLostGrantsNothingAndItsHolderKnowsInTime(t *testing.T) {
	t.Parallel()
	b := quorumBed(t, quorumNodes, servers.RedisOptions{})
	endsOnHung(t, b, b.nodes[:3])
}

func TestANodesClockThatIsAMinuteWrongHarmsNothing(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{wrong, -wrong} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			clock, opts := newClock(t)
			nodes := append(servers.StartRedisNodes(t, 1, opts), servers.StartRedisNodes(t, 2, servers.RedisOptions{})...)
			b := quorumOf(t, nodes, "off")
			h, resource := new(History), new(counter)
			holder := b.open()
			b.warmUp(holder, "n") // the first lock asks all nodes, because the client does not know their tokens yet
			lease := record(h).must(t, holder, "held", wrong/2)
			over := lease.watch()
			b.votes("held", len(b.nodes))
			stop := b.busy(h, resource, 3, b.open)
			progress(t, resource, "the clocks are right")
			wantClocks(t, b, store.LevelOK)
			clock.shift(by)
			wantClocks(t, b, store.LevelWarning)
			progress(t, resource, "one clock is wrong")
			other := b.open()
			wantHeld(t, other, "held")
			check(t, lease.Renew(t.Context()))
			clock.shift(0)
			progress(t, resource, "the clocks are right again")
			lease.mustLive(t, over)
			lease.mustUnlock(t)
			b.close(holder, other)
			stop()
		})
	}
}

// wantClocks checks the finding of doctor about the clocks of a quorum.
func wantClocks(t *testing.T, b *bed, want store.Level) {
	t.Helper()
	s, err := store.Open(t.Context(), b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	findings := s.(store.Diagnoser).Diagnose(t.Context(), holdfast.DefaultTTL)
	if f := diagnosistest.Find(t, findings, "quorum.clocks"); f.Level != want {
		t.Errorf("%+v, want level %s", f, want)
	}
}
