package etcdstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// The TTL is so long that nobody waits for the leases to expire.
func TestCloseRevokesTheLeasesOfManyGrants(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	const n = 400
	var reqs []store.Request
	for i := range n {
		req := request(fmt.Sprint("n", i), false)
		req.TTL = 24 * time.Hour
		reqs = append(reqs, req)
	}
	inParallel(n, func(i int) { must(t, s, reqs[i], 0) })
	inParallel(n, func(i int) {
		if err := s.Release(context.Background(), reqs[i].Name, reqs[i].ID, store.Keep{}); err != nil {
			t.Error(err)
		}
	})
	s.Close()
	if left := residue(t, look); len(left) > 0 {
		t.Errorf("%d left on the server: %.5q", len(left), left)
	}
}
