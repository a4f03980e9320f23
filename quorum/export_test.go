package quorum

// Order returns the i-th node in the order of a name.
func (s *Store) Order(name string, i int) int { return s.order(name)[i].index }

// Remembered returns how many identities and names the store remembers, and how many messages it still repeats.
func (s *Store) Remembered() (sessions, names, undoings int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, se := range s.sessions {
		se.mu.Lock()
		for _, t := range se.seats {
			if t.end != nil {
				undoings++
			}
		}
		se.mu.Unlock()
	}
	return len(s.sessions), len(s.names), undoings
}
