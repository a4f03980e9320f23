package mysqlstore

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, harness(one, openOne))
}

func TestCompare(t *testing.T) {
	storetest.Compare(t, harness(one, openOne), storetest.CompareOptions{Sequences: 400})
}

func openOne(t testing.TB) store.Store {
	s, err := store.Open(t.Context(), one.URL(one.Addr()))
	must(t, err)
	return s
}

func harness(server *servers.MariaDB, open func(t testing.TB) store.Store) storetest.Harness {
	return storetest.Harness{
		Open: open, TTL: 2 * time.Second, Slack: time.Second, Parallel: 16,
		Residue: func(t testing.TB) []string { return residue(t, server) },
	}
}

// residue returns all names in use and all claims. Rows of names that are not in use stay for
// some seconds, because they hold the last token. Records of requests that may arrive late, whose
// seq is negative, stay for a minute.
func residue(t testing.TB, server *servers.MariaDB) (left []string) {
	t.Helper()
	db, err := sql.Open("mysql", server.DSN())
	must(t, err)
	defer db.Close() // the suite counts goroutines
	rows, err := db.Query("SELECT CONCAT('name ', name, ' special ', special, ' id ', HEX(id), ' until ', until)" +
		" FROM holdfast_names WHERE (special <> 0 OR until <> 0)" +
		" AND name NOT IN (SELECT name FROM holdfast_claims WHERE seq < 0)" +
		" UNION ALL SELECT CONCAT('claim ', name, ' seq ', seq, ' id ', HEX(id)) FROM holdfast_claims WHERE seq >= 0")
	must(t, err)
	for rows.Next() {
		var line string
		must(t, rows.Scan(&line))
		left = append(left, line)
	}
	must(t, rows.Err())
	return left
}
