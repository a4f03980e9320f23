package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

func Example() {
	ctx := context.Background()
	c, err := holdfast.Open(ctx, "memory:example") // or redis://…, once its store is imported
	if err != nil {
		panic(err)
	}
	defer c.Close()

	err = c.Do(ctx, "order:42", func(ctx context.Context) error {
		// ctx is cancelled before anyone else can get the lock.
		fmt.Println("working with token", holdfast.TokenFrom(ctx))
		return nil
	})
	fmt.Println(err)
	// Output:
	// working with token 1
	// <nil>
}

func ExampleClient_Lock() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	lease, err := c.Lock(ctx, "order:42", holdfast.Wait(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock(ctx)
	fmt.Println(lease.Name(), "is mine, with token", lease.Token())
	// Output: order:42 is mine, with token 1
}

func ExampleClient_TryLock() {
	ctx := context.Background()
	s := memstore.New()
	alice, err := holdfast.New(s, holdfast.WithOwner("alice"))
	if err != nil {
		log.Fatal(err)
	}
	bob, err := holdfast.New(s)
	if err != nil {
		log.Fatal(err)
	}
	defer alice.Close()
	defer bob.Close()

	lease, _ := alice.TryLock(ctx, "backup", holdfast.Meta("nightly"))
	defer lease.Unlock(ctx)

	_, err = bob.TryLock(ctx, "backup")
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holders[0].Owner, "for", held.Holders[0].Meta)
	}
	// Output: held by alice for nightly
}

func ExampleClient_RLock() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	one, _ := c.RLock(ctx, "catalog")
	two, _ := c.RLock(ctx, "catalog")
	_, err = c.TryLock(ctx, "catalog")
	fmt.Println("a writer beside two readers:", errors.Is(err, holdfast.ErrHeld))
	one.Unlock(ctx)
	two.Unlock(ctx)
	// Output: a writer beside two readers: true
}

func ExampleClient_Semaphore() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	lease, err := c.Semaphore("gpu", 8).Acquire(ctx, 2) // 2 of 8
	if err != nil {
		panic(err)
	}
	defer lease.Unlock(ctx)
	_, err = c.Semaphore("gpu", 8).TryAcquire(ctx, 7)
	fmt.Println("7 more:", errors.Is(err, holdfast.ErrHeld))
	// Output: 7 more: true
}

func ExampleClient_LockAll() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	// The order does not matter: two transfers between the same accounts do not deadlock.
	set, err := c.LockAll(ctx, []string{"account:2", "account:1"})
	if err != nil {
		panic(err)
	}
	defer set.Unlock(ctx)
	for _, lease := range set.Leases() {
		fmt.Println(lease.Name())
	}
	// Output:
	// account:1
	// account:2
}

func ExampleClient_Once() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	register := func(ctx context.Context) error {
		fmt.Println("registered")
		return nil
	}
	for range 3 {
		err := c.Once(ctx, "register:18818261890", 24*time.Hour, register)
		if errors.Is(err, holdfast.ErrDone) {
			fmt.Println("was registered before")
		}
	}
	// Output:
	// registered
	// was registered before
	// was registered before
}

func ExampleClient_Campaign() {
	c, err := holdfast.New(memstore.New(), holdfast.WithOwner("host-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())

	err = c.Campaign(ctx, "scheduler", func(ctx context.Context) error {
		leader, _ := c.Leader(ctx, "scheduler")
		fmt.Println("leader:", leader.Owner)
		cancel() // the process is asked to stop
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// leader: host-1
	// true
}

func ExampleLease_Context() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	lease, _ := c.Lock(ctx, "order:42", holdfast.NoRenew(), holdfast.TTL(50*time.Millisecond))
	work := lease.Context(ctx)
	<-work.Done() // the lease is not renewed
	fmt.Println(context.Cause(work))
	// Output: holdfast: lease "order:42": lost: its TTL of 50ms is over and it was not renewed
}

func ExampleReentrant() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	inner := func(ctx context.Context) error {
		return c.Do(ctx, "order:42", func(context.Context) error { return nil }, holdfast.Reentrant())
	}
	fmt.Println(c.Do(ctx, "order:42", inner))
	// Output: <nil>
}

func ExampleRetry() {
	ctx := context.Background()
	s := memstore.New()
	holder, err := holdfast.New(s)
	if err != nil {
		log.Fatal(err)
	}
	c, err := holdfast.New(s)
	if err != nil {
		log.Fatal(err)
	}
	defer holder.Close()
	defer c.Close()
	lease, _ := holder.Lock(ctx, "busy")
	defer lease.Unlock(ctx)

	patience := holdfast.MaxAttempts(3, holdfast.Backoff(time.Millisecond, 10*time.Millisecond))
	_, err = c.Lock(ctx, "busy", holdfast.Retry(patience))
	fmt.Println(errors.Is(err, holdfast.ErrHeld))
	// Output: true
}

func ExampleClient_List() {
	ctx := context.Background()
	c, err := holdfast.New(memstore.New(), holdfast.WithOwner("host-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lease, _ := c.Lock(ctx, "order:42")
	defer lease.Unlock(ctx)

	for lock, err := range c.List(ctx, "order:") {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(lock.Name, "is held by", lock.Holders[0].Owner)
	}
	// Output: order:42 is held by host-1
}
