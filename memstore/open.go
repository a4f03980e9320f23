package memstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

func init() { store.Register("memory", open) }

// shared holds the tables that were opened by URL, while a handle on them is open.
var shared struct {
	sync.Mutex
	tables map[string]*sharedTable
}

type sharedTable struct {
	table   *table
	handles int
}

// open opens "memory:" or "memory:NAME". All handles of this process with the same name share
// the same locks.
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
	st := shared.tables[name]
	if st == nil {
		st = &sharedTable{table: newTable()}
		if shared.tables == nil {
			shared.tables = make(map[string]*sharedTable)
		}
		shared.tables[name] = st
	}
	st.handles++
	return &Store{table: st.table, done: make(chan struct{}), free: func() {
		shared.Lock()
		defer shared.Unlock()
		if st.handles--; st.handles == 0 {
			delete(shared.tables, name)
		}
	}}, nil
}
