package fleet

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

// A Demo plays the scenarios of an example with the locks on a store, and returns one line about
// their results. The URL is empty if the example should use a temporary SQLite file.
type Demo func(ctx context.Context, store string) (proof string, err error)

// Main is the main function of an example: it runs an instance if a Fleet has started this
// process, and otherwise the demonstration. Demo defines the flags of the demonstration and
// returns the function to run.
func Main(name string, instance func(ctx context.Context, args []string) error, demo func() Demo) {
	var err error
	if args, ok := IsInstance(); ok {
		err = instance(context.Background(), args)
	} else {
		err = play(name, demo())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func play(name string, demo Demo) error {
	store := flag.String("store", "", "`URL` of the locks (default: HOLDFAST_STORE, or else a temporary SQLite file)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // so that it cleans up
	defer stop()
	proof, err := demo(ctx, cmp.Or(*store, os.Getenv("HOLDFAST_STORE")))
	if err == nil {
		fmt.Printf("\n%s: %s\n", name, proof)
	}
	return err
}
