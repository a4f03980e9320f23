package zkstore

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

var (
	rounds = flag.Int("rounds", 25, "how often each side of a comparison is measured")
	spell  = flag.Duration("spell", 200*time.Millisecond, "how long each measurement takes")
)

// A side is one way to lock and unlock. It returns what one worker does over and over.
type side struct {
	name   string
	worker func(w int) (pair func(i int) error)
}

// compare measures sides in turn, A B C A B C …, and reports the median of each in pairs per
// second, and that of its ratio to the last of the same round: short rounds, so that a machine
// that does other things as well does them to all sides.
func compare(b *testing.B, workers int, sides ...side) {
	rates, ratios := make([][]float64, len(sides)), make([][]float64, len(sides))
	for _, side := range sides {
		measure(b, workers, side) // the server's compiler needs it
	}
	for range *rounds {
		round := make([]float64, len(sides))
		for k, side := range sides {
			round[k] = measure(b, workers, side)
		}
		for k := range sides {
			rates[k] = append(rates[k], round[k])
			ratios[k] = append(ratios[k], round[k]/round[len(sides)-1])
		}
	}
	// at is a share of the way from the least to the greatest.
	at := func(list []float64, share float64) float64 {
		slices.Sort(list)
		return list[int(share*float64(len(list)-1))]
	}
	for k, side := range sides {
		b.Logf("%-8s %2d workers: %7.0f pairs/s (%.0f to %.0f), %.2f (%.2f to %.2f) × %s", side.name, workers,
			at(rates[k], 0.5), at(rates[k], 0.25), at(rates[k], 0.75),
			at(ratios[k], 0.5), at(ratios[k], 0.25), at(ratios[k], 0.75), sides[len(sides)-1].name)
		b.ReportMetric(at(rates[k], 0.5), side.name+"/s")
	}
	b.ReportMetric(0, "ns/op") // means nothing here
}

func measure(b *testing.B, workers int, side side) float64 {
	b.Helper()
	var pairs atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for w := range workers {
		pair := side.worker(w)
		wg.Go(func() {
			for i := 0; time.Since(start) < *spell; i++ {
				if err := pair(i); err != nil {
					b.Error(err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(pairs.Load()) / time.Since(start).Seconds()
}

// contestants are the same job four ways, through one connection each.
func contestants(b *testing.B) (ours, peer, bare, raw func(name func(w, i int) string) side) {
	// The compiler that makes a server fast in the long run, and room for its work.
	server := servers.StartZooKeeper(b, servers.ZooKeeperOptions{Java: []string{"-XX:TieredStopAtLevel=4", "-Xmx512m"}})
	ctx := context.Background()
	c, err := holdfast.Open(ctx, "zk://"+server.Addr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	acl := zk.WorldACL(zk.PermAll)
	ours = func(name func(w, i int) string) side {
		return side{"holdfast", func(w int) func(int) error {
			return func(i int) error { return pair(ctx, c, name(w, i)) }
		}}
	}
	lockConn := connect(b, server.Addr())
	peer = func(name func(w, i int) string) side {
		return side{"zk.Lock", func(w int) func(int) error {
			return func(i int) error {
				l := zk.NewLock(lockConn, "/locks-"+name(w, i), acl) // leaves the parent behind
				if err := l.Lock(); err != nil {
					return err
				}
				return l.Unlock()
			}
		}}
	}
	rawConn := connect(b, server.Addr())
	raw = func(name func(w, i int) string) side {
		return side{"raw", func(w int) func(int) error {
			return func(i int) error { // the least that excludes: no queue, no identity, no token
				path := "/raw-" + name(w, i)
				if _, err := rawConn.Create(path, nil, zk.FlagEphemeral, acl); err != nil {
					return err
				}
				return rawConn.Delete(path, -1)
			}
		}}
	}
	bareConn := connect(b, server.Addr())
	bare = func(name func(w, i int) string) side {
		return side{"bare", func(w int) func(int) error {
			return func(i int) error { // the least for a queue: a place in a parent, and neither stays
				parent := "/bare-" + name(w, i)
				results, err := bareConn.Multi(
					&zk.CreateRequest{Path: parent, Acl: acl},
					&zk.CreateRequest{Path: parent + "/", Acl: acl, Flags: zk.FlagEphemeralSequential})
				if err != nil {
					return err
				}
				_, err = bareConn.Multi(&zk.DeleteRequest{Path: results[1].String, Version: -1}, &zk.DeleteRequest{Path: parent, Version: -1})
				return err
			}
		}}
	}
	return ours, peer, bare, raw
}

func BenchmarkOwnNames(b *testing.B) {
	ours, peer, bare, raw := contestants(b)
	for _, workers := range []int{1, 64} {
		// Each worker its name, taken over and over: the peer needs its parent then, which it
		// makes once.
		name := func(w, i int) string { return fmt.Sprint("own-", workers, "-", w) }
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			compare(b, workers, ours(name), peer(name), bare(name), raw(name))
		})
	}
}

func BenchmarkOneNameInOneClient(b *testing.B) {
	ours, peer, _, _ := contestants(b)
	name := func(int, int) string { return "hot" }
	compare(b, 64, ours(name), peer(name))
}
