package sqlitestore

import (
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

func TestAPushIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []int{0, 1, pushIDs} {
		var ids []store.ID
		for range n {
			ids = append(ids, store.NewID())
		}
		var want []wake.Key
		for _, id := range ids {
			want = append(want, wake.Key{Name: "a name", ID: id})
		}
		if got := readPush(writePush("a name", ids)); !slices.Equal(got, want) {
			t.Errorf("%d identities: %v", n, got)
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
		var ids []store.ID
		woken := readPush(message)
		for _, key := range woken {
			ids = append(ids, key.ID)
		}
		if len(ids) > 0 && !slices.Equal(writePush(woken[0].Name, ids), message) {
			t.Errorf("%x is read as %v", message, woken)
		}
	})
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
