//go:build mutants

package pgstore_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestMutantsAreFound(t *testing.T) {
	const file = "schema.sql"
	suites.Mutants(t, "TestCompare", `sequence \d+ of seed.*`, []suites.Mutant{
		{"permits", file, "e.weight + a_weight <= a_lim", "e.weight < a_lim"},
		{"order", file, "OR front IS DISTINCT FROM own THEN", "OR own IS NULL AND front IS NOT NULL THEN"},
		{"stays queued", file, "\tELSE\n\t\te := dequeue(e, a_id, true);\n", "\tELSIF e.waiters > 99 THEN\n\t\te := dequeue(e, a_id, true);\n"},
		{"block beside waiters", file, "IF a_tokens > 0 AND e.waiters = 0 THEN", "IF a_tokens > 0 THEN"},
		{"leave kept", file, "IF e.id = a_id AND (a_state < 0 OR e.state = a_state) THEN", "IF e.id = a_id THEN"},
		{"kept never ends", file, "ELSIF e.until <= e.at THEN", "ELSIF e.until <= e.at AND e.state = 0 THEN"},
		{"done wakes one", file, "IF a_state = 1 THEN -- all waiters", "IF a_state = 9 THEN -- all waiters"},
		{"cooling wakes nobody", file, "(e.kept OR admits(e, w.mode, w.weight, w.lim))", "admits(e, w.mode, w.weight, w.lim)"},
		{"downgrade wakes nobody", file, "e.id := NULL;\n\t\te.crowd := true;\n\t\te.freed := true;", "e.id := NULL;\n\t\te.crowd := true;"},
	})
}
