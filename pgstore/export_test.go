package pgstore

import "time"

// SetHeartbeat shortens the heartbeat of a store that was not used yet.
func SetHeartbeat(s *Store, d time.Duration) { s.heartbeat, s.listener.keep = d, d }
