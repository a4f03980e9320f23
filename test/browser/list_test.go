package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/store"
)

// lists waits until the list has these names, in order.
func (x *tab) lists(names string) {
	x.t.Helper()
	x.becomes(fmt.Sprintf("[...document.querySelectorAll('.locks tbody th')].map(e => e.innerText).join(' ') === %q", names))
}

// link clicks on the link with this text.
func (x *tab) link(text string) {
	x.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll('a')].find(a => a.innerText === %q)", text)
	x.becomes(find) // the page may be loading
	x.exec(find + ".click()")
}

func TestTheListIsFilteredAndSortedByLinks(t *testing.T) {
	s, x := newSite(t), newTab(t)
	s.lock("a", holdfast.TTL(3*time.Hour))
	s.lock("b", holdfast.TTL(time.Hour), holdfast.Meta("charge"))
	s.lock("c", holdfast.TTL(2*time.Hour))
	if err := s.client.Once(t.Context(), "d", 4*time.Hour, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	s.wait("web-2/77", "c")
	s.wait("web-3/78", "c")
	x.visit(s.base)
	x.lists("a b c d")
	x.shows("4 locks: 3 held, 1 done, 1 waiting (2 waiters)")
	x.link("1 done")
	x.lists("d")
	x.shows("; 1 shown")
	x.link("1 waiting")
	x.lists("c d")
	x.link("least left")
	x.becomes("location.search === '?sort=left&state=done&state=waiting'")
	x.link("1 done")
	x.lists("c")
	x.link("1 waiting")
	x.lists("b c a d")
	x.link("most waiting")
	x.lists("c a b d")
	x.becomes("document.readyState === 'complete'") // the script of the form has run

	// The form keeps the order, and updates keep the filter.
	x.fill("#contains", "charge")
	x.do(chromedp.KeyEvent(kb.Enter))
	x.becomes("location.search === '?contains=charge&sort=waiting'")
	x.lists("b")
	s.lock("e", holdfast.Meta("charge"))
	x.lists("b e")
	x.shows("2 locks: 2 held, 0 done, 0 waiting")
	x.fill("#q", "x")
	x.do(chromedp.KeyEvent(kb.Enter))
	x.shows("No lock is held under this prefix")
}

func TestProblemsStayFolded(t *testing.T) {
	s, x := newSite(t, inspect.Checks(func(context.Context) []store.Finding {
		return []store.Finding{{ID: "redis.eviction", Level: store.LevelFailure, Found: "allkeys-lru", Risk: "locks vanish"}}
	})), newTab(t)
	s.lock("first")
	x.visit(s.base)
	x.shows("1 problem of the store")
	x.shows("locks vanish")
	x.exec("document.querySelector('.findings summary').focus()")
	x.do(chromedp.KeyEvent(kb.Enter))
	x.becomes("!document.querySelector('.findings').open")
	s.lock("second") // an update
	x.shows("second")
	x.hides("locks vanish")
	if focus := eval[string](x, "document.activeElement.innerText"); focus != "1 problem of the store" {
		t.Errorf("after an update the focus is at %q", focus)
	}
	x.do(chromedp.KeyEvent(kb.Enter))
	x.shows("locks vanish")
	s.lock("third")
	x.shows("third")
	x.shows("locks vanish")
}

func TestTheTimelineShowsHoldersAndWaiters(t *testing.T) {
	s, x := newSite(t), newTab(t)
	x.visit(s.base + "lock?name=job")
	x.shows("This lock is free")
	lease := s.lock("job")
	s.wait("web-2/77", "job")
	x.shows("web-2/77 waits for ")
	s.unlock(lease)
	x.shows("web-1/4121 held for ")
	x.shows("web-2/77 holds for ")
	s.wait(`web-3<b onclick="x">`+strings.Repeat("y", 300), "job")
	x.shows("web-3<b onclick=")

	var items []string
	for _, n := range call(x, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Role != nil && n.Name != nil && string(n.Role.Value) == `"listitem"` {
			items = append(items, string(n.Name.Value))
		}
	}
	text := strings.Join(items, "\n")
	for _, want := range []string{fmt.Sprintf("token %d", lease.Token()), "after it had waited for ", strings.Repeat("y", 300) + " waits for "} {
		if !strings.Contains(text, want) {
			t.Errorf("a screen reader does not read %q in:\n%s", want, text)
		}
	}
}
