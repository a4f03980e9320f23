package zkstore

import (
	"fmt"
	"math/rand/v2"
)

const (
	// sweepShare is how many names are looked at for each record that a release keeps: more
	// than one, so that what other processes left goes sooner than new ones come.
	sweepShare = 2

	// sweepBatch is how many are looked at in one go, since that begins with a whole bucket.
	sweepBatch = 64
)

// A sweep goes round all names, a few at a time, and removes what releases kept and whose time
// is over: their makers do that while they live. It is paid for by those who keep records, so
// that nobody else ever has to look.
type sweep struct {
	due    int    // how many names to look at; with the store's mutex
	bucket int    // where it goes on
	after  string // behind this node
}

// begin makes processes that keep but a few records sweep as well, some of them.
func (w *sweep) begin() {
	w.due = rand.N(sweepBatch)
	w.bucket = rand.N(buckets)
}

// sweep looks at the next names.
func (s *Store) sweep() error {
	w := &s.keeper.sweep
	left := sweepBatch
	for range buckets {
		path := fmt.Sprintf("%s/%02x", s.root, w.bucket)
		names, err := s.children(path)
		if err != nil {
			return err
		}
		for _, name := range names {
			if name <= w.after {
				continue
			}
			if left == 0 {
				return nil
			}
			left--
			w.after = name
			q, err := s.lookAt(path + "/" + name)
			if err != nil {
				return err
			}
			if q != nil && len(q.nodes) == 0 {
				s.conn.Delete(q.parent, -1) // fails if somebody comes
			}
		}
		w.bucket, w.after = (w.bucket+1)%buckets, ""
	}
	return nil
}
