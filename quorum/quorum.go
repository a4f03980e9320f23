package quorum

import (
	"context"
	"time"
)

// A Restarter is a node store that knows when its server restarted. A store that does not
// implement it is taken to be as old as needed.
type Restarter interface {
	// Connections returns how many connections to the server were made so far. A server that
	// restarted can be reached only by a new connection.
	Connections() uint64

	// Server asks the server for its identity, which tells two servers apart, and how long it
	// has been up.
	Server(ctx context.Context) (id string, uptime time.Duration, err error)
}
