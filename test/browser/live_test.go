package browser

import (
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast"
)

func TestTheListUpdatesWithoutAReload(t *testing.T) {
	s, x := newSite(t), newTab(t)
	first := s.lock("first")
	x.visit(s.base)
	x.shows("first")
	eval[int](x, "window.marker = 1")
	second := s.lock("second", holdfast.Meta("nightly run"))
	x.shows("second")
	x.shows("nightly run")
	s.wait("web-2/77", "second")
	x.shows("web-2/77")
	s.unlock(first)
	x.hides("first")

	// The button stops the updates, and a second click shows the updates that were missed.
	x.click("#pause")
	x.becomes("document.querySelector('#pause').textContent === 'Resume'")
	s.unlock(second)
	s.lock("third")
	before := eval[string](x, "document.querySelector('.locks').innerText")
	y := newTab(t) // a second tab shows that there was an update
	y.visit(s.base)
	y.shows("third")
	if after := eval[string](x, "document.querySelector('.locks').innerText"); after != before {
		t.Error("a paused page changes")
	}
	x.click("#pause")
	x.shows("third")
	if eval[int](x, "window.marker") != 1 {
		t.Error("the page was reloaded")
	}
}

// A page that seems to be up to date, but is not, would show locks as held that are free.
func TestAPageWithoutItsServerSaysSo(t *testing.T) {
	s, x := newSite(t), newTab(t)
	s.lock("job")
	x.visit(s.base)
	x.shows("job")
	s.server.Listener.Close()
	s.server.CloseClientConnections()
	x.shows("what you see is old")
	x.becomes("document.querySelector('.state .age').checkVisibility()")
	x.becomes("document.querySelector('.state .age').innerText.match(/^The list is [1-9][0-9]* s old, from /)")
	x.becomes("document.querySelector('#news[role=status]') && document.querySelector('#live.stale')")
	x.expect("ERR_") // the browser reports failed connections itself, for example that of a late icon
	x.tolerate("ERR_")
}

// Without HTTP/2, a browser has only six connections to a server, and a stream needs one of them.
func TestATabThatNobodySeesDoesNotListen(t *testing.T) {
	s, x, y := newSite(t), newTab(t), newTab(t)
	s.lock("first")
	x.visit(s.base)
	x.shows("first")
	hide := func(hidden bool) {
		x.exec(fmt.Sprintf("Object.defineProperty(document, 'hidden', {value: %t, configurable: true}), document.dispatchEvent(new Event('visibilitychange'))", hidden))
	}
	hide(true)
	before := eval[string](x, "document.querySelector('.locks').innerText")
	s.lock("second")
	y.visit(s.base)
	y.shows("second")
	if after := eval[string](x, "document.querySelector('.locks').innerText"); after != before {
		t.Error("a hidden page changes")
	}
	hide(false)
	x.shows("second")
}

func TestWithoutJavaScriptThePageReloadsItself(t *testing.T) {
	s, x := newSite(t), newTab(t)
	s.lock("first")
	x.withoutScripts()
	x.visit(s.base)
	x.htmlHas(">first</a>")
	s.lock("second")
	x.htmlHas(">second</a>")
}

// Frequent updates must not remove an element that a user is about to copy or to press.
func TestAnUpdateKeepsFocusAndSelection(t *testing.T) {
	s, x := newSite(t), newTab(t)
	s.lock("a b&c\"d")
	x.visit(s.base)
	x.shows("a b&c")
	x.exec("document.querySelector('.locks a').focus()")
	s.lock("second")
	x.shows("second")
	if name := eval[string](x, "document.activeElement.innerText"); name != "a b&c\"d" {
		t.Errorf("after an update the focus is at %q", name)
	}
	x.exec("getSelection().selectAllChildren(document.querySelector('.locks td'))")
	selected := eval[string](x, "getSelection().toString()")
	s.lock("third")
	y := newTab(t)
	y.visit(s.base)
	y.shows("third")
	if now := eval[string](x, "getSelection().toString()"); now != selected || now == "" {
		t.Errorf("%q was selected, then %q", selected, now)
	}
	x.exec("getSelection().removeAllRanges()")
	x.shows("third")
}
