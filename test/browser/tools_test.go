package browser

import (
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// click clicks on the element that a selector finds.
func (x *tab) click(selector string) {
	x.t.Helper()
	x.do(chromedp.Click(chromedp.CSS(selector)))
}

// press presses the mouse button on an element, which an update of the page may replace at any time.
// It returns a function that releases the button.
func (x *tab) press(selector string) (release func()) {
	x.t.Helper()
	middle := eval[[]float64](x, fmt.Sprintf(`(r => [(r.left + r.right) / 2, (r.top + r.bottom) / 2])(document.querySelector(%q).getBoundingClientRect())`, selector))
	mouse := func(what input.DispatchMouseEventType) {
		call(x, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: what, X: middle[0], Y: middle[1], Button: input.MouseButtonLeft, ClickCount: 1})
	}
	mouse(chromedp.MousePressed)
	return func() { mouse(chromedp.MouseReleased) }
}

// fill types into the field that a selector finds.
func (x *tab) fill(selector, text string) {
	x.t.Helper()
	x.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// forgive removes the problems so far.
func (x *tab) forgive() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.problems = nil
}

// tolerate ignores problems whose text contains part, so far and from now on.
func (x *tab) tolerate(part string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tolerated = part
}

// withoutScripts turns JavaScript off.
func (x *tab) withoutScripts() {
	x.t.Helper()
	call(x, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// htmlHas waits until the page contains a text. It works without JavaScript.
func (x *tab) htmlHas(text string) {
	x.t.Helper()
	suites.Eventually(x.t, "not in the page: "+text, func() bool {
		ctx, cancel := x.limited()
		defer cancel()
		document, err := chromedp.Call(ctx, dom.GetDocument, dom.GetDocumentParams{})
		if err != nil {
			return false // the page is just replaced
		}
		html, err := chromedp.Call(ctx, dom.GetOuterHTML, dom.GetOuterHTMLParams{NodeID: document.Root.NodeID})
		return err == nil && strings.Contains(html.OuterHTML, text)
	})
}

// screen sets the size of the page, and the colours that its user prefers.
func (x *tab) screen(width, height int64, colours string) {
	x.t.Helper()
	call(x, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	call(x, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}})
}
