package faults

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A budget is what one process needs from a store.
type budget struct {
	connections int
	leases      float64 // requests per second for budgetNames leases
	waits       float64 // requests per second for budgetNames waits more
}

const (
	budgetNames = 20
	budgetTime  = 12 * time.Second // longer than the time between two renewals and between two heartbeats
)

// budgetRow matches a row of the table in docs/production.md.
var budgetRow = regexp.MustCompile(`(?m)^\| ([\w, ]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$`)

// budgets returns the table in docs/production.md.
func budgets(t *testing.T) map[string]budget {
	text, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## What a process costs the store")
	section, _, _ = strings.Cut(section, "\n## ")
	all := make(map[string]budget)
	for _, row := range budgetRow.FindAllStringSubmatch(section, -1) {
		var b budget
		b.connections, _ = strconv.Atoi(row[2])
		b.leases, _ = strconv.ParseFloat(row[3], 64)
		b.waits, _ = strconv.ParseFloat(row[4], 64)
		all[row[1]] = b
	}
	return all
}

// The figures in docs/production.md are upper bounds.
func TestAProcessCostsTheStoreWhatThePageSays(t *testing.T) {
	page := budgets(t)
	for store, start := range map[string]func(t testing.TB) *bed{
		"Redis":      func(t testing.TB) *bed { return single(t, servers.RedisOptions{}) },
		"etcd":       func(t testing.TB) *bed { return etcdOn(t, servers.StartEtcdCluster(t, 1, unhurried)) },
		"ZooKeeper":  func(t testing.TB) *bed { return zooBed(t, servers.StartZooKeeperEnsemble(t, 1, quietZoo), longSession) },
		"PostgreSQL": postgres, "MySQL, MariaDB": mysqlShared,
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			want, ok := page[store]
			if !ok {
				t.Fatal("the page has no row for it")
			}
			is := measureBudget(t, start(t))
			t.Logf("%s: %+v, on the page %+v", store, is, want)
			if is.connections > want.connections || is.leases > want.leases || is.waits > want.waits {
				t.Errorf("measured %+v, and the page promises at most %+v", is, want)
			}
		})
	}
}

// measureBudget counts the connections of a client that holds names and waits for others, and the
// messages that it sends.
func measureBudget(t *testing.T, at *bed) (b budget) {
	url, w := at.behind()
	var sent atomic.Int64
	w[0].ToServer.When(func([]byte) bool { sent.Add(1); return false }, func() {})
	other, c := at.open(), openURL(t, url)
	for i := range budgetNames {
		for prefix, client := range map[string]*holdfast.Client{"own": c, "other": other} {
			if _, err := client.Lock(t.Context(), fmt.Sprint(prefix, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rate := func() float64 {
		before := sent.Load()
		time.Sleep(budgetTime)
		return float64(sent.Load()-before) / budgetTime.Seconds()
	}
	b.leases = rate()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range budgetNames {
		wg.Go(func() {
			if _, err := c.Lock(ctx, fmt.Sprint("other", i)); err == nil {
				t.Error("two holders")
			}
		})
	}
	for i := range budgetNames {
		at.queued(other, fmt.Sprint("other", i), 1)
	}
	b.waits = rate() - b.leases
	b.connections = w[0].Open()
	cancel()
	wg.Wait()
	return b
}
