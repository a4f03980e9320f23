package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// SetHeartbeat shortens the heartbeat of a store that was not used yet.
func SetHeartbeat(s *Store, d time.Duration) { s.heartbeat, s.listener.waits.Keep = d, d }

// Pushed reports whether notifications arrive.
func Pushed(s *Store) bool { return s.listener.pushed() }

// UseVersion makes a store call the functions of another version.
func UseVersion(s *Store, schema string, version int) {
	s.sql = callStatementsOf(schema, version)
}

// NewOwning returns a store that uses a pool in the same way as Open.
func NewOwning(pool *pgxpool.Pool, schema string) (*Store, error) {
	return newStore(context.Background(), pool, config{schema: schema, conns: ownConns})
}

// InFlight returns the number of requests in flight plus the number of queued calls.
func InFlight(s *Store) int { return s.batch.Len() + s.renewals.Len() + s.stuckCalls.Len() }
