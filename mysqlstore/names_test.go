package mysqlstore

import "testing"

// All of these names are different, and are held at the same time.
func TestNamesAreComparedByteByByte(t *testing.T) {
	db := connectTo(t, nil)
	s, other := newIn(t, db), newIn(t, db)
	for _, name := range awkward {
		granted(t, s, request(name))
	}
	for _, name := range awkward {
		refused(t, other, request(name))
	}
}
