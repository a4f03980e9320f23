package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// A sweep removes the row of a name that is not in use within about 25 s.
const (
	rowTime  = 40 * time.Second
	rowNames = 100
)

// checkRow checks what happens if a stranger has locked the rows of two names for longer than a hunt does.
// One of them is held and used by many calls, and the other is not in use. No other lease is lost (L4),
// other names are granted at a quarter of their rate or more (L4), and other rows that are not in use are
// removed (R1).
func (h *hunt) checkRow() {
	if h.lockRows == nil || *huntTime < waitTime {
		return
	}
	const stuck, idle = "a stuck row", "an idle row" // a sweep reaches them before the other names
	var lost atomic.Int64
	keeper := h.bed.open(holdfast.WithObserver(func(e holdfast.Event) {
		if e.Kind == holdfast.EventLost && e.Name != stuck {
			lost.Add(1)
		}
	}))
	ctx, cancel := context.WithCancel(context.Background())
	for i := range rowNames + 1 {
		name := fmt.Sprint("unused", i)
		if i == rowNames {
			name = idle
		}
		if err := keeper.Do(ctx, name, func(context.Context) error { return nil }); err != nil {
			h.t.Errorf("lock on healthy servers: %v", err)
		}
	}
	for i := range huntKept {
		for _, name := range []string{fmt.Sprint("kept", i), stuck} {
			if _, err := keeper.RLock(ctx, name, holdfast.TTL(keptTTL)); err != nil {
				h.t.Errorf("lock on healthy servers: %v", err)
			}
		}
	}
	l := h.startLoop(rowNames, keptTTL, 4, 1)
	before := l.rate(window)
	var all sync.WaitGroup
	for _, c := range append(l.clients, keeper) {
		for range 2 {
			all.Go(func() {
				for end := now() + rowTime/4; now() < end; {
					wait, cancel := context.WithTimeout(ctx, window)
					c.RLock(wait, stuck, holdfast.NoRenew(), holdfast.TTL(keptTTL))
					cancel()
				}
			})
		}
	}
	all.Go(func() {
		f := Fault{Kind: "row locked", Name: stuck, Begin: now()}
		h.lockRows(stuck, idle)(rowTime, 0)
		f.End = now()
		h.history.AddFault(f)
	})
	during := l.rate(rowTime / 4)
	l.stop()
	h.require(during >= before/4, "L4", "row: while rows of other names are locked, there are %.0f grants per second; before there were %.0f", during, before)
	left, end := "", now()+rowTime-rowTime/4-window
	for left = h.rows("unused"); left != "0" && now() < end; left = h.rows("unused") {
		time.Sleep(window / 2)
	}
	h.require(left == "0", "R1", "row: while rows of other names are locked, %s of %d rows are left that are not in use", left, rowNames)
	n := lost.Load()
	h.require(n == 0, "L4", "row: a locked row cost %d leases on other names", n)
	h.t.Logf("row locked for %v: %.0f grants per second before, %.0f meanwhile; %s unused rows are left", rowTime, before, during, left)
	all.Wait()
	cancel()
	h.bed.close(keeper)
}
