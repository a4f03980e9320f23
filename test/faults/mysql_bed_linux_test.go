package faults

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/mysqlstore"
)

// A mysqlServer is the part of a server that one test uses: a database of its own.
type mysqlServer struct {
	*servers.MariaDB
	database string
}

var (
	mysqlDatabases atomic.Int64

	sharedMariaDB = sync.OnceValue(func() *servers.MariaDB {
		return servers.StartMariaDB(&process, servers.MariaDBOptions{Config: []string{"--max-connections=500"}})
	})
)

// mysqlShared returns a bed with a database on the server that all tests share.
func mysqlShared(t testing.TB) *bed { return mysqlBed(t, sharedMariaDB()) }

func mysqlBed(t testing.TB, server *servers.MariaDB) *bed {
	t.Helper()
	m := &mysqlServer{MariaDB: server, database: fmt.Sprint("bed", mysqlDatabases.Add(1))}
	m.create(t)
	return &bed{t: t, url: m.url(server.Addr()), mysql: m}
}

func (m *mysqlServer) url(addr string) string {
	return strings.TrimSuffix(m.URL(addr), servers.MariaDBDatabase) + m.database
}

// query returns the first column of a result.
func (m *mysqlServer) query(query string) (list []string, err error) {
	db, err := sql.Open("mysql", m.DSN())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}

// create creates the database.
func (m *mysqlServer) create(t testing.TB) {
	t.Helper()
	if _, err := m.query("CREATE DATABASE " + m.database); err != nil {
		t.Fatal(err)
	}
}

// left returns an error that lists the names in use, the claims and the connections that are
// left. Rows of names that are not in use stay for some seconds, and records of late requests,
// whose seq is negative, for a minute.
func (m *mysqlServer) left() error {
	var left []string
	for _, query := range []string{
		"SELECT CONCAT('name ', name) FROM {}.holdfast_names WHERE (special <> 0 OR until <> 0) AND name NOT IN (SELECT name FROM {}.holdfast_claims WHERE seq < 0)",
		"SELECT CONCAT('claim ', name) FROM {}.holdfast_claims WHERE seq >= 0",
		"SELECT CONCAT('connection ', id) FROM information_schema.processlist WHERE db = '{}'",
	} {
		found, err := m.query(strings.ReplaceAll(query, "{}", m.database))
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	if len(left) > 0 {
		return fmt.Errorf("left: %q", left)
	}
	return nil
}

// mysqlMentions returns byte strings that a request for a name contains. In the parameters of a
// prepared statement, the name and the identity follow their lengths. Otherwise the name is a
// literal.
func mysqlMentions(name string) [][]byte {
	return [][]byte{[]byte(string(rune(len(name))) + name + "\x10"), []byte("x'" + hex.EncodeToString([]byte(name)) + "'")}
}
