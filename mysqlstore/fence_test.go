package mysqlstore

import (
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/sqlfencetest"
)

// connectTo returns a pool of connections to a database of its own, with changed settings.
func connectTo(t testing.TB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	name := "db_" + strings.ToLower(rand.Text()[:12])
	mustExec(t, connect(t, one), "CREATE DATABASE "+name)
	config, err := mysql.ParseDSN(one.DSN())
	if err != nil {
		t.Fatal(err)
	}
	config.DBName = name
	if change != nil {
		change(config)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		db.Close()
		mustExec(t, connect(t, one), "DROP DATABASE "+name)
	})
	return db
}

func TestStaleTokensAreRefusedInTheDatabase(t *testing.T) {
	sqlfencetest.Run(t, sqlfencetest.Database{
		Dialect: sqlfence.MySQL,
		Open:    func(t testing.TB) *sql.DB { return connectTo(t, nil) },
	})
}
