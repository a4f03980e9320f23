package doctor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

func TestStoreWhoseMaximumTTLIsBelowThatOfTheSelfTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		for _, name := range []string{"a", "b", "c"} {
			nodes = append(nodes, quorum.Node{Name: name, Store: memstore.New()})
		}
		q, err := quorum.New(t.Context(), nodes, quorum.Options{RestartDelay: 500 * time.Millisecond, Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		for _, f := range doctor.Run(t.Context(), q, 500*time.Millisecond) {
			if f.Level >= store.LevelFailure {
				t.Errorf("%s: %s", f.ID, f.Found)
			}
		}
	})
}
