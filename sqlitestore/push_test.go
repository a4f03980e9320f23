package sqlitestore

import (
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
)

func TestAPushIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []int{0, 1, pushIDs} {
		var ids []store.ID
		for range n {
			ids = append(ids, store.NewID())
		}
		name, got := readPush(writePush("a name", ids))
		if name != "a name" || !slices.Equal(got, ids) {
			t.Errorf("%d identities: %q and %d", n, name, len(got))
		}
	}
}

// Any process on the host can send any message.
func FuzzPush(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{1})
	f.Add([]byte{255, 1, 2, 3})
	f.Add(writePush("name", []store.ID{store.NewID()}))
	f.Fuzz(func(t *testing.T, message []byte) {
		name, ids := readPush(message)
		if len(ids) > 0 && !slices.Equal(writePush(name, ids), message) {
			t.Errorf("%x is read as %q and %x", message, name, ids)
		}
	})
}
