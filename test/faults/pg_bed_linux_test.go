package faults

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/pgstore"
)

// A pgBed is the part of a PostgreSQL server that one test uses: a schema of its own.
type pgBed struct {
	*servers.Postgres
	schema string
}

var (
	schemas atomic.Int64

	sharedPostgres = sync.OnceValue(func() *servers.Postgres {
		return servers.StartPostgres(&process, servers.PostgresOptions{NoSync: true, Config: []string{"max_connections=400"}})
	})
)

// postgres returns a bed with a schema on a server that is shared by all tests that do not disturb
// it.
func postgres(t testing.TB) *bed { return postgresOn(t, sharedPostgres()) }

func postgresOn(t testing.TB, p *servers.Postgres) *bed {
	pg := &pgBed{p, fmt.Sprintf("faults%d", schemas.Add(1))}
	return &bed{t: t, url: pg.url(p.Addr()), pg: pg}
}

// url returns the URL of the schema at an address. Its connections can be recognized by the name
// of the application.
func (p *pgBed) url(addr string) string {
	return fmt.Sprintf("%s&schema=%s&application_name=%[2]s", servers.PostgresURL(addr), p.schema)
}

// left returns an error that lists the names with holders or waiters, and the connections that
// are left. Rows of free names stay for some seconds, and records of late requests for a minute.
func (p *pgBed) left() error {
	query := `SELECT 'name ' || name FROM SCHEMA.names n WHERE id IS NOT NULL OR crowd AND NOT EXISTS (SELECT FROM SCHEMA.ended e WHERE e.name = n.name)
		UNION ALL SELECT 'holder ' || name FROM SCHEMA.holders UNION ALL SELECT 'waiter ' || name FROM SCHEMA.waiters
		UNION ALL SELECT 'connection ' || query FROM pg_stat_activity WHERE application_name = 'SCHEMA'`
	rows, err := p.Query(strings.ReplaceAll(query, "SCHEMA", p.schema))
	if err == nil && len(rows) > 0 {
		err = fmt.Errorf("left: %v", rows)
	}
	return err
}
