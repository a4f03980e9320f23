package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A batch takes locks, which needs memory, and releases others, which must work without.
func TestAFullServerReleasesLocksInBatches(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s := openQuick(t, "redis://"+server.Addr())
	t.Cleanup(func() { s.Close() })
	server.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for ctx.Err() == nil {
				req := plain(fmt.Sprint("n", i))
				answer, err := s.Acquire(t.Context(), req)
				if err != nil {
					if !strings.Contains(err.Error(), "raise maxmemory") {
						t.Errorf("acquire: %v", err)
					}
					continue
				}
				if !answer.Granted() {
					t.Errorf("refused: %+v", answer.Refusal)
				} else if err := s.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
					t.Errorf("release: %v", err)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	for range 100 {
		server.Must("CONFIG", "SET", "maxmemory", "1mb")
		server.Must("CONFIG", "SET", "maxmemory", "0")
		before := server.Must("GET", rediscore.Prefix+"token")
		for !t.Failed() && server.Must("GET", rediscore.Prefix+"token") == before {
		}
	}
	cancel()
	wg.Wait()
}

func TestAForeignKeyFailsOnlyTheCallForIt(t *testing.T) {
	c := gather(t)
	c.server.Must("SET", rediscore.Prefix+"lock:foreign", "1")
	a, foreign, b := c.later(c.ctx(), plain("a")), c.later(c.ctx(), plain("foreign")), c.later(c.ctx(), plain("b"))
	c.proxy.Heal()
	c.granted(a, b)
	if r := <-foreign; r.err == nil || !strings.Contains(r.err.Error(), "another program") {
		t.Errorf("%+v, %v", r.Answer, r.err)
	}
}
