package mysqlstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

// Requests whose callers gave up while the server hung are executed when it goes on, in any order
// with those that undo them.
func TestAHungServerKeepsNothingOfRequestsThatWereGivenUp(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	url := server.URL(server.Addr())
	c, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other := openStore(t, url)
	const rounds, calls = 3, 16
	for round := range rounds {
		lease, err := c.Lock(t.Context(), "warm")
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		server.Stop()
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Millisecond)
				defer cancel()
				if _, err := c.TryLock(ctx, fmt.Sprint(round, "/", i)); err == nil {
					t.Error("a server that hangs granted a lock")
				}
			})
		}
		wg.Wait()
		time.Sleep(callTimeout + 100*time.Millisecond) // the connection is given up
		server.Continue()
		for i := range calls {
			eventually(t, "a name is free", func() bool {
				r := request(fmt.Sprint(round, "/", i))
				a, err := other.Acquire(bounded(t), r)
				if err != nil || !a.Granted() {
					return false
				}
				release(t, other, r)
				return true
			})
		}
	}
}

// A replica and other servers that must not be written to say so.
func TestAServerThatIsReadOnlySaysWhatToDo(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	admin := poolAt(t, server, nil)
	newIn(t, admin)
	mustExec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 'secret'")
	mustExec(t, admin, "GRANT ALL ON `"+servers.MariaDBDatabase+"`.* TO app@'%'")
	mustExec(t, admin, "SET GLOBAL read_only = 1")
	s := newIn(t, poolAt(t, server, func(c *mysql.Config) { c.User, c.Passwd = "app", "secret" }))
	_, err := s.Acquire(bounded(t), request("n"))
	if err == nil || !strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("Acquire: %v, want an error that says what to do", err)
	}
}
