package memstore

// Names are those that a store keeps in memory, expired ones included.
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

// Len is how many they are.
func Len(s *Store) int { return len(Names(s)) }

// Buckets is how many buckets the store has for them.
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

// SharedTables is how many stores opened by URL exist.
func SharedTables() int {
	shared.Lock()
	defer shared.Unlock()
	return len(shared.tables)
}
