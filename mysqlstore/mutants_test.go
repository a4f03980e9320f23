//go:build mutants

package mysqlstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/mutanttest"
)

func TestMutantsAreFound(t *testing.T) {
	mutanttest.Run(t, "TestCompare", `sequence \d+ of seed.*`, []mutanttest.Mutant{
		{"leave kept", "store.go", "if g := e.held(id); g != nil {\n\t\t\te.remove(g)", "if g := e.find(id); g != nil {\n\t\t\te.remove(g)"},
		{"block beside waiters", "store.go", "if r.Tokens > 0 && len(e.waiters) == 0 {", "if r.Tokens > 0 {"},
		{"downgrade wakes nobody", "store.go", "g.mode = store.Shared\n\t\te.freed = true", "g.mode = store.Shared"},
		{"done wakes one", "entry.go", "if keep.State == store.Done {", "if keep.State == store.Done && len(e.waiters) > 99 {"},
		{"order", "queue.go", "if !fits || len(e.waiters) > 0 && e.waiters[0] != w {", "if !fits || len(e.waiters) > 0 && w == nil {"},
		{"stays queued", "queue.go", "\tif w != nil {\n\t\te.dequeue(w)\n\t}\n\treturn store.Answer{Token", "\treturn store.Answer{Token"},
		{"next is not woken", "queue.go", "e.freed = true // the next waiter may be first now", ""},
		{"cooling wakes nobody", "queue.go", "if kept || e.admits(", "if kept && len(e.waiters) > 99 || e.admits("},
	})
}
