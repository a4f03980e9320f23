package memstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

func init() { store.Register("memory", open) }

// shared are the tables that URLs name, for as long as a handle on them is open.
var shared struct {
	sync.Mutex
	tables map[string]*sharedTable
}

type sharedTable struct {
	table   *table
	handles int
}

// open opens "memory:" or "memory:NAME": the same locks for everybody in this process who
// gives the same name.
func open(ctx context.Context, u *store.URL) (store.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(u.Hosts) > 0 || u.User != "" || u.Password() != "" {
		return nil, fmt.Errorf("%w: memory URL: has a host, but this store is within the process: write memory: or memory:NAME", store.ErrInvalid)
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
