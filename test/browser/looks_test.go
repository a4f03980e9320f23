package browser

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-lock/holdfast"
)

func TestNamesWithHTMLAreInert(t *testing.T) {
	s, x := newSite(t, allowAnn()), newTab(t)
	x.canLogin(credentials("ann", "tell-nobody"))
	var leases []*holdfast.Lease
	for _, evil := range []string{
		`<script>window.hacked = 1</script>`,
		`<img src=x onerror="window.hacked = 1">`,
		`"><svg onload=window.hacked=1>`,
		`' onfocus='window.hacked=1' autofocus='`,
		`javascript:window.hacked=1`,
		`{{.}}${window.hacked=1}</style></title></template>`,
		`</li></td></table><form action=//evil.example><button>`,
	} {
		s.client = s.open(evil)
		leases = append(leases, s.lock(evil, holdfast.Meta(evil)))
		s.wait(evil+"2", evil)
	}
	inert := func(page, name string) {
		t.Helper()
		x.visit(page)
		x.shows(name)
		if eval[bool](x, "!!document.querySelector('#live')") { // its updates are as harmless
			x.exec("document.querySelector('#live').firstElementChild.id = 'old'")
			x.becomes("!document.querySelector('#old')")
			x.shows(name)
		}
		if eval[bool](x, "'hacked' in window") {
			t.Errorf("%s: the page ran a name", page)
		}
		if n := eval[int](x, "document.querySelectorAll('img, #live script, #live form, [onload], [onfocus], [style]').length"); n > 0 {
			t.Errorf("%s: %d elements come from a name", page, n)
		}
	}
	inert(s.base, leases[0].Name())
	for _, lease := range leases {
		name := lease.Name()
		inert(s.base+"lock?"+url.Values{"name": {name}}.Encode(), name)
		inert(s.breakPage(lease), name)
	}
	inert(s.base+"?"+url.Values{"q": {leases[2].Name()}}.Encode(), leases[2].Name())
	evil := leases[0].Name()
	x.visit(s.breakPage(leases[0]))
	x.fill("#typed", evil)
	x.fill("#reason", evil)
	x.click(".break button")
	x.shows("The lock was released")
	if eval[bool](x, "'hacked' in window") {
		t.Error("the page ran a name")
	}
}

// fillUp takes locks that are hard to show.
func (s *site) fillUp() *holdfast.Lease {
	s.t.Helper()
	long := s.lock(strings.Repeat("n", 512), holdfast.Meta(strings.Repeat("m", 1000)))
	s.wait(strings.Repeat("w", 300), long.Name())
	for i := range 30 {
		s.lock(fmt.Sprintf("order:%d", i))
	}
	for i := range 8 {
		if _, err := s.open(fmt.Sprintf("gpu-%d/1", i)).Semaphore("gpu", 8).Acquire(s.t.Context(), 1); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.client.Once(s.t.Context(), "report", 1000*time.Hour, func(context.Context) error { return nil }); err != nil {
		s.t.Fatal(err)
	}
	return long
}

// fits fails the test if an element is outside of the page.
func (x *tab) fits(width int64, page string) {
	x.t.Helper()
	if got := eval[int64](x, "Math.max(document.documentElement.scrollWidth, innerWidth)"); got > width {
		x.t.Errorf("%.20s: %d pixels wide, on a screen of %d", page, got, width)
	}
}

// contrast returns the texts of the page that have too little contrast by the rules of WCAG 2.
const contrast = `(() => {
	const luminance = c => c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const parse = c => { const v = c.match(/[\d.]+/g).map(Number); return v.length > 3 && v[3] === 0 ? null : v; };
	const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
	const bad = [];
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(back(e))].sort((x, y) => y - x);
		const ratio = (a + .05) / (b + .05);
		if (ratio < 4.5) bad.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(1));
	}
	return [...new Set(bad)].join(', ');
})()`

func TestEveryPageCanBeRead(t *testing.T) {
	s, x := newSite(t, allowAnn()), newTab(t)
	long := s.fillUp()
	x.canLogin(credentials("ann", "tell-nobody"))
	backs := make(map[string]bool)
	for _, screen := range []struct {
		width   int64
		colours string
	}{{320, "light"}, {390, "dark"}, {1280, "light"}} {
		x.screen(screen.width, 700, screen.colours)
		for _, page := range []string{s.base, s.base + "lock?name=" + long.Name(), s.base + "lock?name=gpu", s.base + "lock?name=none", s.breakPage(long)} {
			x.visit(page)
			x.fits(screen.width, page)
			if bad := eval[string](x, contrast); bad != "" {
				t.Errorf("%s, %.60s: too little contrast: %s", screen.colours, page, bad)
			}
			x.named(page)
		}
		backs[eval[string](x, "getComputedStyle(document.body).backgroundColor")] = true
	}
	if len(backs) != 2 {
		t.Errorf("dark and light have the backgrounds %v", backs)
	}
}

// named checks that a screen reader can read the name of every control and heading.
func (x *tab) named(page string) {
	x.t.Helper()
	for _, n := range call(x, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		switch role := strings.Trim(string(n.Role.Value), `"`); role {
		case "link", "button", "textbox", "searchbox", "meter", "img", "columnheader", "heading", "navigation":
			if name := string(n.Name.Value); name == `""` || name == "" {
				x.t.Errorf("%.60s: a %s without a name", page, role)
			}
		}
	}
}

func TestTheKeyboardIsEnough(t *testing.T) {
	s, x := newSite(t, allowAnn()), newTab(t)
	s.lock("order:1")
	s.lock("user:1")
	x.canLogin(credentials("ann", "tell-nobody"))
	x.visit(s.base)
	x.shows("order:1")
	press := func(keys string) { x.t.Helper(); x.do(chromedp.KeyEvent(keys)) }
	focus := func() string { return eval[string](x, "document.activeElement.innerText || document.activeElement.id") }
	tabTo := func(text string) {
		x.t.Helper()
		for range 20 {
			if press(kb.Tab); strings.HasPrefix(focus(), text) {
				break
			}
		}
	}

	press(kb.Tab)
	if got := focus(); got != "Skip to the content" || !eval[bool](x, "document.activeElement.getBoundingClientRect().left >= 0") {
		t.Errorf("the first stop is %q", got)
	}
	// Unlike KeyEvent, a key with a text writes nothing if the page handles it.
	call(x, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"})
	press("user")
	press(kb.Enter)
	x.becomes("location.search === '?q=user'")
	x.hides("order:1")
	tabTo("user:1")
	if style := eval[string](x, "getComputedStyle(document.activeElement).outlineStyle"); focus() != "user:1" || style == "none" {
		t.Fatalf("the focus is at %q, outline %s", focus(), style)
	}
	press(kb.Enter)
	x.shows("Held by")
	tabTo("Release by force")
	press(kb.Enter)
	x.shows("The holder may still be running")
	tabTo("typed")
	press("user:1")
	press(kb.Tab)
	press("stuck")
	press(kb.Enter)
	x.shows("The lock was released")
}
