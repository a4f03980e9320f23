package quorum

// Order returns the i-th node in the order of a name.
func (s *Store) Order(name string, i int) int { return s.order(name)[i].index }

// Remembered returns how many identities and names the store remembers, and how many messages it
// still repeats.
func (s *Store) Remembered() (sessions, names, undoings int) {
	for _, n := range s.nodes {
		n.undo.mu.Lock()
		undoings += len(n.undo.all)
		n.undo.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions), len(s.names), undoings
}
