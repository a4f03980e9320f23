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
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	_ "github.com/holdfast-lock/holdfast/pgstore"     // for postgres: URLs
	_ "github.com/holdfast-lock/holdfast/redisstore"  // for redis: URLs
	_ "github.com/holdfast-lock/holdfast/sqlitestore" // for sqlite: URLs
)

func main() { fleet.Main("leader", instance, demo) }

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
	db, err := openDatabase(*data)
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

// openDatabase opens the database of the work. It is a separate file, because the file of the
// locks belongs to Holdfast.
func openDatabase(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_txlock=immediate")
}
