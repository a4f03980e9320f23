//go:build mutants

package mysqlstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// These are mistakes in what is read and written. Those in the rules are found by memstore.
func TestMutantsAreFound(t *testing.T) {
	suites.Mutants(t, "TestCompare", `sequence \d+ of seed.*`, []suites.Mutant{
		{"expired record stays", "tx.go", "case first.Until > e.call.Now:", "case first.Until > e.call.Now || first.State != 0:"},
		{"dead waiters stay", "tx.go", "case c.Until <= e.call.Now:", "case c.Until <= e.call.Now && c.Seq <= 0:"},
		{"closed name looks free", "entry.go", "special |= isClosed", ""},
		{"change of a holder is not written", "entry.go", "\te.changed[h] = true\n", ""},
		{"other holder stays", "entry.go", "e.drops = append(e.drops, claimKey(e.name, 0, h.ID))", ""},
		{"stays queued", "entry.go", "e.drops = append(e.drops, claimKey(e.name, w.Seq, w.ID))", ""},
		{"nobody is woken", "tx.go", "e.call.Finish()", ""},
	})
}
