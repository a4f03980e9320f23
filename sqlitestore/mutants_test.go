//go:build mutants

package sqlitestore_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// These are mistakes in what is read and written. Those in the rules are found by memstore.
func TestMutantsAreFound(t *testing.T) {
	suites.Mutants(t, "TestCompare", `sequence \d+ of seed.*`, []suites.Mutant{
		{"expired grant stays", "entry.go", "if e.first != nil && e.first.Until <= tx.now {", "if e.first != nil && e.first.Until <= tx.now && e.first.State == 0 {"},
		{"crowd without other grants", "entry.go", "crowd := e.others.Mode != 0 || e.waiters > 0", "crowd := e.waiters > 0"},
		{"weights of others", "entry.go", "sum.Weight += int(integer(row[0]))", "_ = row"},
		{"other grant stays", "entry.go", "e.exec(sqlDeleteHolder, e.name, h.ID[:])", ""},
		{"nobody is woken", "entry.go", "c.Finish()", ""},
		{"stays queued", "queue.go", "e.exec(sqlDeleteWaiter, e.name, w.Seq)", ""},
		{"place", "queue.go", "seq = of.Seq", "seq = of.Seq + 1"},
		{"done wakes one", "queue.go", "if e.waiters > 0 {\n\t\te.each(", "if e.waiters > 99 {\n\t\te.each("},
	})
}
