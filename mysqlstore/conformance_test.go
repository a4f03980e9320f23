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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // the suite counts goroutines
	for _, query := range []string{
		"SELECT CONCAT('name ', name, ' special ', special, ' id ', HEX(id), ' until ', until) FROM holdfast_names" +
			" WHERE (special <> 0 OR until <> 0) AND name NOT IN (SELECT name FROM holdfast_claims WHERE seq < 0)",
		"SELECT CONCAT('claim ', name, ' seq ', seq, ' id ', HEX(id)) FROM holdfast_claims WHERE seq >= 0",
	} {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			left = append(left, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return left
}
