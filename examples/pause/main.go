// Pause shows the failure that no lock can prevent. A process that holds a lock is suspended in
// the middle of writing a file. Its lease ends, another process takes the lock and writes the
// file. Then the first process wakes up and continues to write where it stopped.
//
// Without a fence, the file contains lines of both. With one, the file server refuses the write
// of the first process, because its fencing token is older than that of the second.
//
//	go run ./examples/pause
//	go run ./examples/pause -store redis://127.0.0.1:6379
//
// The parts to copy are writer.go, the holder's side, and storage.go, the side of the resource.
// Demo.go starts the processes and suspends one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence"
)

func main() {
	var s settings
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long a suspended holder keeps the lock")
	fleet.Main("pause", instance, s.run)
}

// instance writes the report once, when it receives the order.
func instance(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("instance", flag.ExitOnError)
	author := flags.String("author", "", "the name on every line of the report")
	storage := flags.String("storage", "", "`URL` of the file server")
	ttl := flags.Duration("ttl", holdfast.DefaultTTL, "how long others wait after a crash")
	pauseAt := flags.Int("pause", 0, "wait for an order before this line")
	flags.Parse(args)

	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), holdfast.WithPrefix("example-pause:"), holdfast.WithOwner(*author), holdfast.WithTTL(*ttl))
	if err != nil {
		return err
	}
	defer locks.Close()

	orders := fleet.Orders()
	w := newWriter(locks, *storage, *author)
	w.before = func(line int) {
		if line == *pauseAt {
			fmt.Printf("is at line %d of %d\n", line, reportLines)
			<-orders
		}
	}
	fmt.Println("ready")
	if _, ok := <-orders; !ok {
		return nil
	}
	err = w.writeReport(ctx)
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		fmt.Println("ended: write refused:", stale)
	case errors.Is(err, holdfast.ErrLost):
		fmt.Println("ended: all lines written, but the lock was lost meanwhile")
	case err != nil:
		return err
	default:
		fmt.Println("ended: report written")
	}
	for range orders {
	}
	return nil
}
