package gocronholdfast_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/gocronholdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

// Every host runs this program. Here the hosts are two schedulers with one store in memory.
func ExampleNewLocker() {
	s := memstore.New() // in a program: holdfast.Open with the URL of a store that all hosts use
	defer s.Close()
	ran := make(chan int64, 2)
	for range 2 {
		c, err := holdfast.New(s)
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		locker, err := gocronholdfast.NewLocker(c, 10*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			log.Fatal(err)
		}
		defer scheduler.Shutdown()
		job := func(ctx context.Context) error {
			ctx = locker.Context(ctx, "report") // ends if the lock is lost
			ran <- holdfast.TokenFrom(ctx)
			return nil
		}
		_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(job), gocron.WithName("report"))
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
	}
	fmt.Println("report, with a token:", <-ran > 0)
	select {
	case <-ran:
		fmt.Println("and a second time")
	case <-time.After(100 * time.Millisecond):
	}
	// Output: report, with a token: true
}

func ExampleElector() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := memstore.New()
	defer s.Close()
	c, err := holdfast.New(s)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	elector := gocronholdfast.NewElector(c, "scheduler")
	resigned := make(chan error)
	go func() { resigned <- elector.Campaign(ctx) }()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan struct{}, 1)
	job := func(ctx context.Context) {
		ctx, done := elector.Context(ctx) // ends if the leadership is lost
		defer done()
		if ctx.Err() == nil {
			ran <- struct{}{}
		}
	}
	if _, err := scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(job)); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-ran
	fmt.Println("the leader ran the job")

	// On shutdown, resign last.
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	cancel()
	fmt.Println(<-resigned)
	// Output:
	// the leader ran the job
	// holdfast: campaign "scheduler": context canceled
}
