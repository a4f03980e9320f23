package memstore

// Names returns the names that a store keeps in memory, including expired ones.
func Names(s *Store) (names []string) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for name := range s.table.names {
		names = append(names, name)
	}
	return names
}

// SharedTables returns the number of tables that were opened by URL and are still open.
func SharedTables() int {
	shared.Lock()
	defer shared.Unlock()
	return len(shared.tables)
}
