// Stock is a flash sale: 500 items, 5,000 buyers, three instances of a shop. It never sells more
// items than it has, even when an instance is suspended in the middle of a purchase for longer
// than its lease lasts.
//
//	go run ./examples/stock
//	go run ./examples/stock -store redis://127.0.0.1:6379
//
// The part to copy is shop.go, or redis_shop.go if the stock is on Redis. Main.go is one
// instance of the shop, and demo.go starts three of them, suspends one, and counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/redis/rueidis"
)

func main() {
	var s settings
	flag.IntVar(&s.items, "items", 500, "how many items there are")
	flag.IntVar(&s.buyers, "buyers", 5000, "how many buyers want one")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long a suspended holder keeps the lock")
	fleet.Main("stock", instance, s.run)
}

// instance serves its share of the buyers, all of them concurrently.
func instance(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("instance", flag.ExitOnError)
	data := flags.String("data", "", "the database of the shop")
	onRedis := flags.Bool("redis", false, "keep stock and orders on Redis, under the name in -data")
	first := flags.Int("first", 0, "number of the first buyer")
	buyers := flags.Int("buyers", 0, "how many buyers")
	ttl := flags.Duration("ttl", holdfast.DefaultTTL, "how long others wait after a crash")
	noHandover := flags.Bool("no-handover", false, "give the lock back to the store after every purchase")
	unlocked := flags.Bool("without-lock", false, "sell without a lock")
	pause := flags.Bool("pause", false, "wait for an order in the middle of the first purchase")
	flags.Parse(args)

	options := []holdfast.Option{holdfast.WithPrefix("example-stock:"), holdfast.WithTTL(*ttl)}
	if *noHandover {
		options = append(options, holdfast.WithHandover(0, 0))
	}
	orders := fleet.Orders()
	charge := chargeCard
	if *pause {
		charge = pauser(orders)
	}
	var buy func(ctx context.Context, buyer int) error
	if *onRedis {
		client, err := openRedis(os.Getenv("HOLDFAST_STORE"))
		if err != nil {
			return err
		}
		defer client.Close()
		s, err := newRedisShop(client, *data, options...)
		if err != nil {
			return err
		}
		defer s.locks.Close()
		s.charge = charge
		buy = s.buy
	} else {
		locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), options...)
		if err != nil {
			return err
		}
		defer locks.Close()
		db, err := fleet.OpenDatabase(*data)
		if err != nil {
			return err
		}
		defer db.Close()
		s := newShop(locks, db)
		s.charge = charge
		buy = s.buy
		if *unlocked {
			buy = s.buyWithoutLock
		}
	}

	fmt.Println("open")
	if _, ok := <-orders; !ok {
		return nil
	}
	var sold, soldOut, refused atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, *buyers)
	for buyer := *first; buyer < *first+*buyers; buyer++ {
		all.Go(func() {
			switch err := buy(ctx, buyer); {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, errSoldOut):
				soldOut.Add(1)
			case errors.Is(err, fence.ErrStale):
				refused.Add(1)
			default:
				failed <- err
			}
		})
	}
	all.Wait()
	fmt.Printf("closed: sold %d, sold out %d, refused %d\n", sold.Load(), soldOut.Load(), refused.Load())
	if len(failed) > 0 {
		return fmt.Errorf("%d purchases failed, such as: %w", len(failed), <-failed)
	}
	for range orders {
	}
	return nil
}

// pauser returns a function that waits for an order before it charges the first card.
func pauser(orders <-chan string) func(context.Context, int) error {
	var once sync.Once
	return func(ctx context.Context, buyer int) error {
		once.Do(func() {
			fmt.Println("charges the card of its first buyer")
			<-orders
		})
		return chargeCard(context.WithoutCancel(ctx), buyer)
	}
}

// openRedis connects to the Redis server of the locks, for the data of the shop.
func openRedis(url string) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, errors.New("the URL of the store is not one of Redis")
	}
	return rueidis.NewClient(option)
}
