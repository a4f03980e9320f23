//go:build mutants

package memstore_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// The rules are tested here for all stores that share them.
func TestMutantsAreFound(t *testing.T) {
	const rules, loaded = "../internal/stores/rules/rules.go", "../internal/stores/rules/loaded.go"
	suites.Mutants(t, "(TestCompare|TestExactness)", `sequence \d+ of seed.*|--- FAIL.*`, []suites.Mutant{
		{"held", rules, "fits := h == nil && c.admits(", "fits := h == nil || c.admits("},
		{"order", rules, "first != nil && first.ID != req.ID {", "first != nil && w == nil {"},
		{"leave kept", rules, "if h := c.held(id); h != nil {", "if h := c.Holder(id); h != nil {"},
		{"release kept", rules, "h := c.held(id)\n\tif h == nil {\n\t\treturn store.ErrNotHeld", "h := c.Holder(id)\n\tif h == nil {\n\t\treturn store.ErrNotHeld"},
		{"done wakes one", rules, "if keep.State == store.Done {", "if keep.State == store.Done && c.Waiters() > 99 {"},
		{"block beside waiters", rules, "if r.Tokens > 0 && c.Waiters() == 0 {", "if r.Tokens > 0 {"},
		{"downgrade wakes nobody", rules, "h.Mode = store.Shared\n\t\tc.Freed = true", "h.Mode = store.Shared"},
		{"age of kept", rules, "h.State, h.Since, h.Until = keep.State, c.Now, c.after(keep.For)", "h.State, h.Until = keep.State, c.after(keep.For)"},
		{"TTL only grows", rules, "h.Until = c.after(r.TTL)", "h.Until = max(h.Until, c.after(r.TTL))"},
		{"asking again leaves the TTL", rules, "h.Until = c.after(req.TTL)\n\t\tc.Put(h)", "c.Put(h)"},
		{"stays queued", rules, "c.Put(h)\n\tif w != nil {\n\t\tc.dequeue(w)\n\t}", "c.Put(h)"},
		{"stays queued without Queue", rules, "\t\tc.dequeue(w)\n\t\tw = nil", "\t\tw = nil"},
		{"stays queued if invalid", rules, "if err != nil && w != nil {", "if err != nil && w != nil && c.Waiters() > 99 {"},
		{"next is not woken", rules, "c.Freed = true // the next waiter may be the first now", ""},
		{"removal wakes nobody", rules, "c.Remove(h)\n\tc.Freed = true", "c.Remove(h)"},
		{"cooling wakes nobody", rules, "(c.Kept() || c.admits(", "(c.admits("},
		{"weight", loaded, "sum.Weight += h.Weight", "sum.Weight++"},
		{"kept never ends", "table.go", "if claim.Until <= c.Now {", "if claim.Until <= c.Now && claim.State == 0 {"},
		{"dead waiters stay", "table.go", "drop(e.Queue, e.Dequeue)", "drop(e.Queue[:min(1, len(e.Queue))], e.Dequeue)"},
		{
			"a refusal keeps the wake-up", "table.go", "e.table.waits.Expect(wake.Key{Name: e.name, ID: w.ID})",
			"e.table.waits.Lock()\n\te.table.waits.Put(wake.Key{Name: e.name, ID: w.ID})\n\te.table.waits.Unlock()",
		},
		{"tokens repeat", "table.go", "first = *last + 1", "first = *last"},
	})
}
