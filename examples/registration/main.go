// Registration is an HTTP service in three instances. A thousand requests with the same phone
// number arrive at the same time, and create one user.
//
//	go run ./examples/registration
//	go run ./examples/registration -store redis://127.0.0.1:6379
//
// The part to copy is service.go. Main.go is one instance of the service, and demo.go starts
// three of them, sends the requests and kills an instance.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

func main() {
	var s settings
	flag.IntVar(&s.requests, "requests", 1000, "how many requests have the same phone number")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long others wait after a crash")
	fleet.Main("registration", instance, s.run)
}

// instance runs the service until its standard input ends.
func instance(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("instance", flag.ExitOnError)
	data := flags.String("data", "", "the database of users")
	ttl := flags.Duration("ttl", holdfast.DefaultTTL, "how long others wait after a crash")
	unlocked := flags.Bool("without-lock", false, "look, then insert")
	stopAt := flags.String("stop", "", "wait at this point for an order, or to be killed: before or after the INSERT")
	flags.Parse(args)

	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"), holdfast.WithPrefix("example-registration:"), holdfast.WithTTL(*ttl))
	if err != nil {
		return err
	}
	defer locks.Close()
	db, err := fleet.OpenDatabase(*data)
	if err != nil {
		return err
	}
	defer db.Close()

	s := newService(locks, db)
	goOn := make(chan struct{})
	s.create = stopper(*stopAt, goOn, s.create)
	register := s.register
	if *unlocked {
		register = s.registerWithoutLock
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(register)}
	go server.Serve(listener)
	fmt.Println("listening on", listener.Addr())

	for range fleet.Orders() { // at most one order, which is to continue
		close(goOn)
	}
	// Finish the requests first, then close the locks that they use.
	shutdown, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return server.Shutdown(shutdown)
}

// stopper makes create wait at one point, until goOn is closed.
func stopper(at string, goOn <-chan struct{}, create func(context.Context, string) error) func(context.Context, string) error {
	var stopped sync.Once
	stop := func(point string) {
		if at == point {
			stopped.Do(func() { fmt.Println("stopped", point, "the INSERT") })
			<-goOn
		}
	}
	return func(ctx context.Context, phone string) error {
		stop("before")
		err := create(ctx, phone)
		stop("after")
		return err
	}
}
