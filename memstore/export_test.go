package memstore

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

// Len returns the number of names that a store keeps in memory.
func Len(s *Store) int { return len(Names(s)) }

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

// SharedTables returns the number of tables that are open by URL.
func SharedTables() int {
	shared.Lock()
	defer shared.Unlock()
	return len(shared.tables)
}
