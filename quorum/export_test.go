package quorum

// Order returns the i-th node that is asked for a name.
func (s *Store) Order(name string, i int) int { return s.order(name, i) }
