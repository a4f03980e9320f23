package mysqlstore

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

var clientsTime = flag.Duration("clients", 3*time.Second, "how long 64 clients lock 200 names")

func TestSixtyFourClientsLoseNoUpdate(t *testing.T) {
	const clients, names = 64, 200
	db := connectTo(t, nil)
	db.SetMaxOpenConns(20)
	var all []*holdfast.Client
	for range clients {
		all = append(all, suites.Client(t, newIn(t, poolOf(t, databaseOf(t, db), nil))))
	}
	n := suites.Updates(t, db, sqlfence.MySQL(databaseOf(t, db)), all, names, *clientsTime)
	var rows, claims int
	scan(t, db, "SELECT (SELECT COUNT(*) FROM holdfast_names), (SELECT COUNT(*) FROM holdfast_claims)", &rows, &claims)
	if n == 0 || rows > names || claims > clients {
		t.Errorf("%d updates; %d rows of %d names, %d claims of %d clients", n, rows, names, claims, clients)
	}
}

// Low timeouts that an administrator has set for all sessions do not affect a busy store.
func TestLowTimeoutsOfTheServerDoNotReachCallers(t *testing.T) {
	db := connectTo(t, nil)
	newIn(t, db)
	var all []*holdfast.Client
	for range 8 {
		pool := poolOf(t, databaseOf(t, db), func(c *mysql.Config) {
			c.Params = map[string]string{"innodb_lock_wait_timeout": "0", "lock_wait_timeout": "0", "idle_transaction_timeout": "1", "wait_timeout": "1"}
		})
		all = append(all, suites.Client(t, newIn(t, pool)))
	}
	suites.Contend(t, all, 16, 2, 2*time.Second, func(_ int, unlocked error) {
		if unlocked != nil {
			t.Errorf("Unlock: %v", unlocked)
		}
	})
}

// The longest names and texts of a full batch fit into the packets that an administrator allows.
func TestAFullBatchFitsIntoAPacketOfTheServer(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Config: []string{"--max-allowed-packet=1M"}})
	s := openStore(t, server.URL(server.Addr()))
	var wg sync.WaitGroup
	for i := range 260 {
		wg.Go(func() {
			r := request(fmt.Sprint(i, strings.Repeat("n", store.MaxName-3)))
			r.Mode = []store.Mode{store.Exclusive, store.Shared}[i%2]
			r.Owner, r.Meta = strings.Repeat("o", store.MaxText), strings.Repeat("m", store.MaxText)
			answered := func(call func() error) {
				err := call()
				for try := 1; errors.Is(err, bounded.ErrNoReply) && try < 10; try++ { // the machine is busy
					err = call()
				}
				if err != nil {
					t.Error(err)
				}
			}
			acquire := func() error { _, err := s.Acquire(limited(t), r); return err }
			answered(acquire)
			r.ID, r.Queue = store.NewID(), true // behind it, or beside it
			answered(acquire)
			answered(func() error { return s.Leave(limited(t), r.Name, r.ID) })
		})
	}
	wg.Wait()
}
