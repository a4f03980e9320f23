package faults

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// parallel is the number of tests that run at the same time. Most of the time they wait for
// leases to expire and for servers to detect a fault.
const parallel = "8"

func TestMain(m *testing.M) {
	if o, ok := os.LookupEnv(childEnv); ok {
		err := runChild(o)
		if err == nil {
			err = noGoroutines()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if !isSet("test.parallel") {
		flag.Set("test.parallel", parallel)
	}
	code := m.Run()
	process.End()
	if err := noGoroutines(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// noGoroutines checks K: no goroutine of a client is left after all were closed. Tests run in
// parallel, so this can be checked only at the end.
func noGoroutines() error {
	var left []string
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = Leftover(string(stacks), "holdfast.(*", "holdfast/store", "holdfast/redisstore", "holdfast/internal/redis/rediscore.", "redis/rueidis", "redis/go-redis",
			"holdfast/quorum.", "holdfast/etcdstore", "google.golang.org/grpc",
			"holdfast/zkstore", "go-zookeeper/zk.", "holdfast/sqlitestore", "holdfast/pgstore", "holdfast/mysqlstore")
		if len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
}
