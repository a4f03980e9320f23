// Cron runs the same job on five hosts (here: processes), whose clocks differ. Exactly one host
// completes the job of each tick, even when the host that is running it dies.
//
//	go run ./examples/cron
//	go run ./examples/cron -store redis://127.0.0.1:6379
//
// The part to copy is scheduler.go. Main.go is one host, and demo.go starts five of them, kills
// one, and counts the runs.
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
)

func main() {
	var s settings
	flag.IntVar(&s.ticks, "ticks", 20, "how many ticks to wait for")
	flag.DurationVar(&s.period, "period", time.Second, "time between two ticks")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long others wait after a crash")
	fleet.Main("cron", instance, s.run)
}

// instance is one host. It runs the scheduler until the last tick.
func instance(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("instance", flag.ExitOnError)
	host := flags.String("host", "", "name of this host")
	data := flags.String("data", "", "the database in which the job notes its runs")
	offset := flags.Duration("offset", 0, "how far the clock of this host is ahead")
	period := flags.Duration("period", 0, "time between two ticks")
	ttl := flags.Duration("ttl", holdfast.DefaultTTL, "how long others wait after a crash")
	unlocked := flags.Bool("without-lock", false, "run every tick on every host")
	crash := flags.String("crash", "", "the first host that creates this `file` hangs in the middle of one tick")
	flags.Parse(args)

	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), holdfast.WithPrefix("example-cron:"), holdfast.WithOwner(*host), holdfast.WithTTL(*ttl))
	if err != nil {
		return err
	}
	defer locks.Close()
	if *unlocked {
		locks = nil
	}
	db, err := fleet.OpenDatabase(*data)
	if err != nil {
		return err
	}
	defer db.Close()

	orders := fleet.Orders()
	fmt.Printf("ready, clock is off by %v\n", *offset)
	var last, crashAt int64
	if _, err := fmt.Sscanf(<-orders, "last %d crash %d", &last, &crashAt); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for range orders {
		}
		cancel()
	}()

	s := &scheduler{
		locks:  locks,
		name:   "report",
		period: *period,
		now:    func() time.Time { return time.Now().Add(*offset) },
	}
	s.job = func(ctx context.Context, tick time.Time) error {
		if tick.UnixMilli() == crashAt {
			if file, err := os.OpenFile(*crash, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				file.Close()
				fmt.Println("hangs in the middle of tick", tick.Format(clock))
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}
		_, err := db.ExecContext(ctx, "INSERT INTO runs (tick, host) VALUES (?, ?)", tick.UnixMilli(), *host)
		return err
	}
	s.log = func(tick time.Time, err error) {
		switch {
		case err == nil:
			fmt.Println("ran tick", tick.Format(clock))
		case errors.Is(err, holdfast.ErrDone): // another host ran it
		default:
			fmt.Println("tick", tick.Format(clock), "failed:", err)
		}
		if tick.UnixMilli() >= last {
			cancel()
		}
	}
	if err := s.run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Println("closed")
	return nil
}

// clock is the format in which ticks are printed.
const clock = "15:04:05.0"
