package memstore

import (
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

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

// Woken reports whether a queued identity was woken since its last refusal.
func Woken(s *Store, name string, id store.ID) bool {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	signal := s.table.waits[wake.Key{Name: name, ID: id}]
	return signal != nil && signal.Sent()
}
