package renewal

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// readyGrants returns a flight with n grants that are ready, of different TTLs.
func readyGrants(n, ttls int) *flight {
	f := new(flight)
	for range n {
		g := new(Grant)
		g.TTL = time.Duration(1+rand.IntN(ttls)) * time.Second
		f.ready = append(f.ready, g)
	}
	return f
}

func TestEveryReadyGrantIsInOneBatchWithOthersOfItsTTL(t *testing.T) {
	for ttls := 1; ttls <= 5; ttls++ {
		f := readyGrants(5000, ttls)
		left := make(map[time.Duration][]*Grant)
		for _, g := range f.ready {
			switch rand.IntN(20) {
			case 0:
				g.expired = true
			case 1:
				g.index = -1 // released
			default:
				left[g.TTL] = append(left[g.TTL], g)
			}
		}
		for {
			batch := f.next()
			if len(batch) == 0 {
				break
			}
			list := left[batch[0].TTL]
			if want := min(len(list), maxBatch); !slices.Equal(batch, list[:want]) {
				t.Fatalf("%d TTLs: a batch of %d grants, want the first %d of its TTL", ttls, len(batch), want)
			}
			left[batch[0].TTL] = list[len(batch):]
		}
		for ttl, list := range left {
			if len(list) > 0 {
				t.Errorf("%d TTLs: %d grants of %v are in no batch", ttls, len(list), ttl)
			}
		}
	}
}

// BenchmarkNextOfMany measures one batch while all grants of a client are ready, as after a hang.
func BenchmarkNextOfMany(b *testing.B) {
	const n = 100_000
	for f := new(flight); b.Loop(); {
		if len(f.ready) == 0 {
			b.StopTimer()
			f = readyGrants(n, 1)
			b.StartTimer()
		}
		f.next()
	}
}
