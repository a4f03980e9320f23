// First is a first look at Holdfast: two clients of one store, which could be two programs
// on two hosts, and three goroutines that want the same lock.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/memstore" // for memory: URLs
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	alice, err := holdfast.Open(ctx, "memory:", holdfast.WithOwner("alice"))
	if err != nil {
		return err
	}
	defer alice.Close()
	bob, err := holdfast.Open(ctx, "memory:", holdfast.WithOwner("bob"))
	if err != nil {
		return err
	}
	defer bob.Close()

	// The lock passes from one goroutine to the next, even between clients.
	var wg sync.WaitGroup
	for _, c := range []*holdfast.Client{alice, bob, alice} {
		wg.Go(func() {
			err := c.Do(ctx, "order:42", func(ctx context.Context) error {
				fmt.Printf("%-5s works with token %d\n", c.Owner(), holdfast.TokenFrom(ctx))
				time.Sleep(100 * time.Millisecond)
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()

	// TryLock does not wait. Its error says who holds the lock.
	lease, err := alice.Lock(ctx, "backup", holdfast.Meta("nightly"))
	if err != nil {
		return err
	}
	if _, err := bob.TryLock(ctx, "backup"); errors.Is(err, holdfast.ErrHeld) {
		fmt.Println(err)
	}
	return lease.Unlock(ctx)
}
