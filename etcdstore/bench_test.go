package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

// A contender locks and unlocks a name once.
type contender struct {
	name string
	pair func(ctx context.Context, worker, i int) error
}

// turn is how long a contender runs at a time. They take turns, so that whatever else the
// machine does meets all of them.
const turn = 100 * time.Millisecond

// BenchmarkOwnNames compares pairs of lock and unlock of names that nobody else wants: ours,
// etcd's own package, and the fewest requests that could do it, a transaction that creates a
// key and one that deletes it. Run it with -benchtime=30x or so: each is a round of all.
func BenchmarkOwnNames(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			addr := servers.StartEtcd(b, servers.EtcdOptions{}).Addr()
			client := direct(b, addr)
			ours := openClient(b, "etcd://"+addr)
			session := newSession(b, client)
			race(b, workers, []contender{
				{"holdfast", func(ctx context.Context, worker, i int) error {
					lease, err := ours.Lock(ctx, fmt.Sprint("bench:", worker, ":", i))
					if err != nil {
						return err
					}
					return lease.Unlock(ctx)
				}},
				{"concurrency", func(ctx context.Context, worker, i int) error {
					return lockPeer(ctx, session, fmt.Sprint("peer/", worker, "/", i))
				}},
				{"raw", func(ctx context.Context, worker, i int) error {
					key := fmt.Sprint("raw/", worker, "/", i)
					_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
						Then(clientv3.OpPut(key, "", clientv3.WithLease(session.Lease()))).Commit()
					if err == nil {
						_, err = client.Delete(ctx, key)
					}
					return err
				}},
			})
		})
	}
}

// BenchmarkHotName compares pairs on one name that all goroutines of a program want.
func BenchmarkHotName(b *testing.B) {
	addr := servers.StartEtcd(b, servers.EtcdOptions{}).Addr()
	client := direct(b, addr)
	ours := openClient(b, "etcd://"+addr)
	const workers = 64
	// A session each: etcd's mutex does not exclude two of one session.
	sessions := make([]*concurrency.Session, workers)
	for i := range sessions {
		sessions[i] = newSession(b, client)
	}
	race(b, workers, []contender{
		{"holdfast", func(ctx context.Context, _, _ int) error {
			lease, err := ours.Lock(ctx, "hot")
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		}},
		{"concurrency", func(ctx context.Context, worker, _ int) error {
			return lockPeer(ctx, sessions[worker], "hot/")
		}},
	})
}

func openClient(b *testing.B, url string) *holdfast.Client {
	b.Helper()
	c, err := holdfast.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func newSession(b *testing.B, client *clientv3.Client) *concurrency.Session {
	b.Helper()
	session, err := concurrency.NewSession(client)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { session.Close() })
	return session
}

func lockPeer(ctx context.Context, session *concurrency.Session, name string) error {
	mutex := concurrency.NewMutex(session, name)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	return mutex.Unlock(ctx)
}

// race lets the contenders take turns, and reports the median of each in pairs per second and
// the ratio of the first to the others.
func race(b *testing.B, workers int, contenders []contender) {
	rates := make([][]float64, len(contenders))
	for i := range contenders { // connects, and makes leases
		run(b, workers, turn, contenders[i])
	}
	b.ResetTimer()
	for b.Loop() {
		for i := range contenders {
			rates[i] = append(rates[i], run(b, workers, turn, contenders[i]))
		}
	}
	b.StopTimer()
	for i, c := range contenders {
		slices.Sort(rates[i])
		median := rates[i][len(rates[i])/2]
		b.ReportMetric(median, c.name+"/s")
		b.ReportMetric((rates[i][len(rates[i])-1]-rates[i][0])/median, c.name+"-spread")
		if i > 0 {
			first := rates[0][len(rates[0])/2]
			b.ReportMetric(first/median, "x-"+c.name)
		}
	}
	b.ReportMetric(0, "ns/op") // says nothing here
}

// run returns how many pairs a second a contender makes.
func run(b *testing.B, workers int, span time.Duration, c contender) float64 {
	b.Helper()
	ctx := context.Background()
	var pairs atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for worker := range workers {
		wg.Go(func() {
			for i := 0; time.Since(begin) < span; i++ {
				if err := c.pair(ctx, worker, i); err != nil {
					b.Errorf("%s: %v", c.name, err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(pairs.Load()) / time.Since(begin).Seconds()
}
