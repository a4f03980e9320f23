// Stock is a flash sale: 500 items, 5,000 buyers, three instances of a shop. It never sells more items than
// it has, even when an instance is suspended in the middle of a purchase for longer than its lease lasts.
// Copy shop.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

var example = fleet.Example{Name: "stock", Instance: instance, Play: play}

func main() { example.Main() }

var items, buyers = 500, 5000

// instance serves its share of the buyers, all of them concurrently.
func instance(i *fleet.Instance) error {
	s := &shop{locks: i.Locks, db: i.DB}
	if i.Name == "a" && i.Is("pause") {
		charge, first := chargeCard, sync.OnceFunc(func() { i.Stop("while it charges a card") })
		chargeCard = func(ctx context.Context, buyer int) error {
			first()
			return charge(ctx, buyer)
		}
	}
	buy := s.buy
	if i.Is("unlocked") {
		buy = func(ctx context.Context, buyer int) error { return s.sell(ctx, buyer, 0) }
	}
	from, _ := strconv.Atoi(i.Args[0])
	to, _ := strconv.Atoi(i.Args[1])
	var refused atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, to)
	for buyer := from; buyer < to; buyer++ {
		all.Go(func() {
			switch err := buy(i.Ctx, buyer); {
			case errors.Is(err, fence.ErrStale):
				refused.Add(1)
			case !errors.Is(err, errSoldOut):
				errs[buyer] = err
			}
		})
	}
	all.Wait()
	fmt.Println("closed, refused:", refused.Load())
	return errors.Join(errs...)
}

func play(s *fleet.Stage) (proof string) {
	unlocked, _, _ := sale(s, "no lock", "unlocked")
	s.Want(unlocked > items, "%d orders for %d items: the buyers did not compete", unlocked, items)
	orders, refused, took := sale(s, "lock and fence", "")
	s.Want(orders == items && refused == 0, "%d orders, %d refused; want %d and 0", orders, refused, items)
	orders, refused, _ = sale(s, "lock and fence, and an instance is suspended in the middle of a purchase", "pause")
	s.Want(orders == items && refused == 1, "%d orders, %d refused; want %d and 1", orders, refused, items)
	return fmt.Sprintf("%d items, %d buyers, 3 instances: %d orders, %d write of a suspended holder refused (without the lock: %d orders); %.0f buyers a second",
		items, buyers, orders, refused, unlocked, float64(buyers)/took.Seconds())
}

// sale lets new instances sell everything. In the mode "pause", instance a is suspended meanwhile.
func sale(s *fleet.Stage, title, mode string) (orders, refused int, took time.Duration) {
	s.Part(title, fmt.Sprintf(`CREATE TABLE stock (left INTEGER NOT NULL); INSERT INTO stock VALUES (%d);
		CREATE TABLE orders (id INTEGER PRIMARY KEY, buyer INTEGER NOT NULL UNIQUE)`, items))
	if mode == "pause" {
		s.TTL = fleet.Short
	}
	for n, name := range []string{"a", "b", "c"} {
		s.Ready(name, strconv.Itoa(n*buyers/3), strconv.Itoa((n+1)*buyers/3), mode)
	}
	begin := time.Now()
	s.Tell("start", "a")
	if mode == "pause" {
		s.Suspend("a", "while it charges a card")
	}
	s.Tell("start", "b", "c")
	for _, name := range []string{"b", "c", "a"} {
		if mode == "pause" && name == "a" {
			s.Resume("a")
		}
		refused += must.Get(strconv.Atoi(s.Await("closed, refused: ", name).Text))
	}
	took = time.Since(begin)
	s.AwaitEnd("a", "b", "c")
	orders = s.Int("SELECT count(*) FROM orders")
	left := s.Int("SELECT left FROM stock")
	s.Want(mode == "unlocked" || left == items-orders, "%d left after %d orders for %d items", left, orders, items)
	fmt.Fprintf(s.Out, "   => %d items, %d orders, %d left; %d buyers in %.1f s\n", items, orders, left, buyers, took.Seconds())
	return orders, refused, took
}
