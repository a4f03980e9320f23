package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Whoever can write to the store chooses owners and metas. A carriage return in them would end a
// line of the event stream.
func TestTextFromTheStoreDoesNotFreezeThePage(t *testing.T) {
	s, x := newSite(t), newTab(t)
	x.visit(s.base)
	const nasty = "x\r\revent: other\rretry: 100000000\rdata: forged\u202e"
	req := store.Request{Name: "job", ID: store.NewID(), Weight: 1, TTL: time.Minute, Owner: nasty, Meta: nasty}
	if a, err := s.store.Acquire(t.Context(), req); err != nil || !a.Granted() {
		t.Fatal(a, err)
	}
	x.shows(`x\u000d\u000devent: other`)
	s.lock("later") // the page continues to update
	x.shows("later")
	if text := eval[string](x, "document.body.innerText"); strings.ContainsAny(text, "\r\u202e") {
		t.Errorf("%q", text)
	}
}
