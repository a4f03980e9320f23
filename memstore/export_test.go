package memstore

import "github.com/holdfast-lock/holdfast/store"

// Names returns the names that a store keeps in memory, including expired ones.
func Names(s *Store) []string {
	var names []string
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		sh.mu.Lock()
		for _, e := range sh.buckets {
			for ; e != nil; e = e.next {
				names = append(names, e.name)
			}
		}
		sh.mu.Unlock()
	}
	return names
}

// Buckets returns the number of hash buckets of a store.
func Buckets(s *Store) int {
	n := 0
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		sh.mu.Lock()
		n += len(sh.buckets)
		sh.mu.Unlock()
	}
	return n
}

// SharedTables returns the number of tables that were opened by URL and are still open.
func SharedTables() int {
	shared.Lock()
	defer shared.Unlock()
	return len(shared.tables)
}

// Woken reports whether a queued identity was woken since its last refusal.
func Woken(s *Store, name string, id store.ID) bool {
	sh, hash := s.table.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(name, hash)
	if e == nil {
		return false
	}
	w := e.queue.find(id)
	return w != nil && w.wake.Sent()
}
