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
	"database/sql"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	_ "github.com/holdfast-lock/holdfast/pgstore"     // for postgres: URLs
	_ "github.com/holdfast-lock/holdfast/redisstore"  // for redis: URLs
	_ "github.com/holdfast-lock/holdfast/sqlitestore" // for sqlite: URLs
)

func main() { fleet.Main("registration", instance, demo) }

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
	db, err := openDatabase(*data)
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

// openDatabase opens the database of users, which all instances share. It is a separate file,
// because the file of the locks belongs to Holdfast.
func openDatabase(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	return db, nil
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
