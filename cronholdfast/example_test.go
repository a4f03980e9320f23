package cronholdfast_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cronholdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

// Every host runs this program. Here the hosts are two schedulers with one store in memory.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := memstore.New() // in a program: holdfast.Open with the URL of a store that all hosts use
	defer s.Close()
	ran := make(chan time.Time, 10)
	for range 2 {
		c, err := holdfast.New(s)
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		cr := cron.New(cron.WithSeconds(), cron.WithLocation(time.UTC))
		jobs := cronholdfast.New(ctx, cr, c, cron.DefaultLogger)
		_, err = jobs.AddFunc("* * * * * *", "report", func(ctx context.Context, tick time.Time) error {
			ran <- tick // ctx ends if the lock is lost
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		cr.Start()
		defer cr.Stop()
	}
	first, second := <-ran, <-ran
	fmt.Println("two runs, of different ticks:", !first.Equal(second))
	// Output: two runs, of different ticks: true
}
