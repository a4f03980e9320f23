// Balance moves money between ten accounts, in three instances of a bank at the same time. The
// sum of all balances never changes, even when an instance is suspended in the middle of a
// transfer for longer than its leases last.
//
//	go run ./examples/balance
//	go run ./examples/balance -store redis://127.0.0.1:6379
//
// The part to copy is bank.go. Main.go is one instance of the bank, and demo.go starts three of
// them, suspends one, and adds up the balances.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence"
)

func main() {
	var s settings
	flag.IntVar(&s.transfers, "transfers", 3000, "how many transfers to make")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long a suspended holder keeps its locks")
	fleet.Main("balance", instance, s.run)
}

// accounts is the number of accounts. Each has initialBalance at the start.
const (
	accounts       = 10
	initialBalance = 1000
)

// instance makes its transfers, several of them concurrently.
func instance(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("instance", flag.ExitOnError)
	data := flags.String("data", "", "the database of the bank")
	transfers := flags.Int("transfers", 0, "how many random transfers to make")
	one := flags.String("transfer", "", "the only transfer to make: from,to,amount")
	ttl := flags.Duration("ttl", holdfast.DefaultTTL, "how long others wait after a crash")
	mode := flags.String("mode", "", "without-lock or without-fence")
	pause := flags.Bool("pause", false, "wait for an order in the middle of the transfer")
	flags.Parse(args)

	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), holdfast.WithPrefix("example-balance:"), holdfast.WithTTL(*ttl))
	if err != nil {
		return err
	}
	defer locks.Close()
	db, err := fleet.OpenDatabase(*data)
	if err != nil {
		return err
	}
	defer db.Close()

	orders := fleet.Orders()
	b := newBank(locks, db)
	if *pause {
		b.approve = func(context.Context) error {
			fmt.Println("has read the balances")
			<-orders
			return nil
		}
	}
	method := map[string]func(context.Context, transfer) error{
		"": b.transfer, "without-lock": b.transferWithoutLock, "without-fence": b.transferWithoutFence,
	}[*mode]

	fmt.Println("open")
	if _, ok := <-orders; !ok {
		return nil
	}
	c := &counts{method: method}
	if *one != "" {
		var t transfer
		if _, err := fmt.Sscanf(*one, "%d,%d,%d", &t.from, &t.to, &t.amount); err != nil {
			return err
		}
		c.transfer(ctx, t)
	} else {
		c.random(ctx, *transfers)
	}
	fmt.Printf("closed: transfers %d, without funds %d, refused %d\n", c.done.Load(), c.noFunds.Load(), c.refused.Load())
	if c.err != nil {
		return c.err
	}
	for range orders {
	}
	return nil
}

// counts makes transfers and counts how they end.
type counts struct {
	method                 func(context.Context, transfer) error
	done, noFunds, refused atomic.Int64

	mu  sync.Mutex
	err error // the first other error
}

// random makes n transfers, eight at a time.
func (c *counts) random(ctx context.Context, n int) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range (n + i) / 8 {
				from := rand.IntN(accounts)
				to := (from + 1 + rand.IntN(accounts-1)) % accounts
				c.transfer(ctx, transfer{from, to, 1 + rand.IntN(100)})
			}
		})
	}
	all.Wait()
}

func (c *counts) transfer(ctx context.Context, t transfer) {
	switch err := c.method(ctx, t); {
	case err == nil:
		c.done.Add(1)
	case errors.Is(err, errNoFunds):
		c.noFunds.Add(1)
	case errors.Is(err, fence.ErrStale):
		c.refused.Add(1)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil {
			c.err = err
		}
	}
}
