//go:build mutants

package memstore_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/mutanttest"
)

func TestMutantsAreFound(t *testing.T) {
	mutanttest.Run(t, "TestCompare", `sequence \d+ of seed.*|--- FAIL.*`, []mutanttest.Mutant{
		{"held", "store.go", "fits := h == nil && e.admits(", "fits := h == nil || e.admits("},
		{"order", "store.go", "if !fits || e.queue.first != w {", "if !fits || e.queue.first != nil && w == nil {"},
		{"leave kept", "store.go", "if h := e.find(id); h != nil && h.state == store.Held {", "if h := e.find(id); h != nil {"},
		{"release kept", "store.go", "if h == nil || h.state != store.Held {\n\t\t\treturn store.ErrNotHeld", "if h == nil {\n\t\t\treturn store.ErrNotHeld"},
		{"done wakes one", "store.go", "e.wakeAll()", "e.wakeHead()"},
		{"block beside waiters", "store.go", "if r.Tokens > 0 && e.queue.n == 0 {", "if r.Tokens > 0 {"},
		{"downgrade wakes nobody", "store.go", "h.mode = store.Shared\n\t\te.wakeHead()", "h.mode = store.Shared"},
		{"kept never ends", "entry.go", "if h.until <= now {", "if h.until <= now && h.state == store.Held {"},
		{"dead waiters stay", "entry.go", "if w.until <= now {", "if w.until <= now && w.prev == nil {"},
		{"age of kept", "entry.go", "h.state, h.since = keep.State, now", "h.state = keep.State"},
		{"weight", "entry.go", "e.weight += int64(h.weight)", "e.weight++"},
		{"TTL only grows", "entry.go", "h.until = until", "h.until = max(h.until, until)"},
		{"stays queued", "queue.go", "\t\tif w != nil {\n\t\t\te.dequeue(w)\n\t\t}\n\t\tr.Waiters", "\t\tr.Waiters"},
		{"next is not woken", "queue.go", "q.first = w.next\n\te.wakeHead()", "q.first = w.next"},
		{"cooling wakes nobody", "queue.go", "(e.kept > 0 || e.admits(w.mode, int(w.weight), int(w.limit)))", "e.admits(w.mode, int(w.weight), int(w.limit))"},
	})
}
