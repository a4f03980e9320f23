package pgstore

import (
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

// Pool returns the connections of a store.
func Pool(s *Store) *pgxpool.Pool { return s.pool }

// InFlight returns the number of requests in flight plus the number of queued calls.
func InFlight(s *Store) int { return s.batch.Len() + s.renewals.Len() + s.stuckCalls.Len() }
