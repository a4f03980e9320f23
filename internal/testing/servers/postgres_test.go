package servers_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestPostgresKeepsItsDataAcrossAKillAndAReplicaFollows(t *testing.T) {
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	p.Must("CREATE TABLE a (b int); INSERT INTO a VALUES (1)")
	p.Stop()
	p.Continue()
	p.Restart()
	if got := p.Value("SELECT sum(b) FROM a"); got != "1" {
		t.Errorf("after a restart the sum is %s, want 1", got)
	}
	r := p.StartReplica(t)
	if got := r.Value("SELECT pg_is_in_recovery()"); got != "t" {
		t.Fatal("the replica is not in recovery")
	}
	r.Promote()
	r.Must("INSERT INTO a VALUES (2)")
	if _, err := p.Query("SELECT 1/0"); err == nil {
		t.Error("no error for a division by zero")
	}
	b := servers.StartPgBouncer(t, p, servers.PgBouncerOptions{})
	if !b.Running() {
		t.Error("PgBouncer has ended")
	}
	if n := p.Terminate(""); n != 1 {
		t.Errorf("%d clients, want that of PgBouncer", n)
	}
	p.Shutdown()
}
