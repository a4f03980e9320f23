package mysqlstore

import (
	"database/sql"
	"testing"

	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/sqlfencetest"
)

func TestStaleTokensAreRefusedInTheDatabase(t *testing.T) {
	sqlfencetest.Run(t, sqlfencetest.Database{
		Dialect: sqlfence.MySQL,
		Open:    func(t testing.TB) *sql.DB { return connectTo(t, nil) },
	})
}
