package memstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

func init() { store.Register("memory", open) }

// shared holds the tables that were opened by URL, while a handle on them is open.
var shared = struct {
	sync.Mutex
	tables map[string]*table
}{tables: make(map[string]*table)}

// open opens "memory:" or "memory:NAME". All handles of this process with the same name share
// the same locks, until the last one is closed. The next one starts without any, and with token 1.
func open(ctx context.Context, u *store.URL) (store.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(u.Hosts) > 0 || u.User != "" || u.Password() != "" {
		return nil, fmt.Errorf("%w: memory URL: has a host, but this store is in the memory of the process: write memory: or memory:NAME", store.ErrInvalid)
	}
	if err := u.Only(); err != nil {
		return nil, err
	}
	name := u.Path
	shared.Lock()
	defer shared.Unlock()
	t := shared.tables[name]
	if t == nil {
		t = newTable()
		shared.tables[name] = t
	}
	t.handles++
	return newStore(t, func() {
		shared.Lock()
		defer shared.Unlock()
		if t.handles--; t.handles == 0 {
			delete(shared.tables, name)
		}
	}), nil
}
