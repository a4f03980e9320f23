package quorum

// Order returns the i-th node that is asked for a name.
func (s *Store) Order(name string, i int) int { return s.order(name, i) }

// Sessions returns how many identities the store remembers.
func (s *Store) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Names returns the names of the nodes, in the order in which they are asked for a name.
func (s *Store) Names(name string) (names []string) {
	for i := range s.nodes {
		names = append(names, s.nodes[s.order(name, i)].name)
	}
	return names
}

// Listed returns how many names are remembered as listed.
func (s *Store) Listed() (n int) {
	s.listings.mu.Lock()
	defer s.listings.mu.Unlock()
	for _, names := range s.listings.all {
		n += len(names)
	}
	return n
}

// Crowded returns how many names are remembered as contended.
func (s *Store) Crowded() int {
	s.crowds.mu.Lock()
	defer s.crowds.mu.Unlock()
	return len(s.crowds.until)
}
