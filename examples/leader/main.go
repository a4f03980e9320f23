// Leader is a server with four instances. One of them, the leader, works in the background. When
// the leader is stopped, another instance takes over at once. When it crashes, another instance
// takes over within the TTL. When it is suspended and wakes up, its work is cancelled.
//
//	go run ./examples/leader
//	go run ./examples/leader -store redis://127.0.0.1:6379
//
// The part to copy is server.go. Main.go is one instance, and demo.go starts four of them and
// ends the leadership three times.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

func main() {
	var s settings
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long others wait after a crash")
	fleet.Main("leader", instance, s.run)
}

// instance runs the server until the process is asked to end.
func instance(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("instance", flag.ExitOnError)
	host := flags.String("host", "", "name of this instance")
	data := flags.String("data", "", "the database of the leader's work")
	ttl := flags.Duration("ttl", holdfast.DefaultTTL, "how long others wait after a crash")
	unlocked := flags.Bool("without-lock", false, "lead without an election")
	flags.Parse(args)

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), holdfast.WithPrefix("example-leader:"), holdfast.WithOwner(*host), holdfast.WithTTL(*ttl))
	if err != nil {
		return err
	}
	db, err := fleet.OpenDatabase(*data)
	if err != nil {
		return err
	}
	defer db.Close()

	orders := make(chan string, 10)
	go func() {
		for order := range fleet.Orders() {
			orders <- order
		}
		cancel()
	}()

	s := newServer(locks, db)
	if *unlocked {
		defer locks.Close()
		s.work = func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "INSERT INTO work (leader) VALUES (?)", *host)
			return err
		}
		if err := s.lead(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	s.work = pauser(orders, s.work)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	return s.run(ctx, listener)
}

// pauser returns work that a demonstration can pause: after an order, it waits for the next order
// before it does another piece of work.
func pauser(orders <-chan string, work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return err
		}
		select {
		case <-orders:
			fmt.Println("waits after a piece of work")
			select {
			case <-orders:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		default:
		}
		return nil
	}
}
