//go:build mutants

package sqlitestore_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/mutanttest"
)

func TestMutantsAreFound(t *testing.T) {
	mutanttest.Run(t, "TestCompare", `sequence \d+ of seed.*`, []mutanttest.Mutant{
		{"leave kept", "store.go", "if err == nil && g != nil && g.state == store.Held {", "if err == nil && g != nil {"},
		{"block beside waiters", "store.go", "if r.Tokens > 0 && e.waiters == 0 {", "if r.Tokens > 0 {"},
		{"downgrade wakes nobody", "store.go", "g.mode = store.Shared\n\t\te.freed = true", "g.mode = store.Shared"},
		{"done wakes one", "store.go", "err = e.wakeAll() // any", "err = nil // any"},
		{"order", "queue.go", "if !fits || first != nil && first.id != req.ID {", "if !fits || first != nil && w == nil {"},
		{"stays queued", "queue.go", "\tif w != nil {\n\t\tif err := e.drop(w); err != nil {\n\t\t\treturn store.Answer{}, err\n\t\t}\n\t}\n\treturn store.Answer{Token", "\treturn store.Answer{Token"},
		{"next is not woken", "queue.go", "e.freed = true // the next waiter may be first now", ""},
		{"cooling wakes nobody", "queue.go", "wake, err := e.kept()", "wake, err := false, error(nil)"},
	})
}
