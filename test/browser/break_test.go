package browser

import (
	"fmt"
	"html"
	"net/url"
	"testing"

	"github.com/holdfast-lock/holdfast"
)

// held fails the test if this lease no longer holds its lock.
func (s *site) held(lease *holdfast.Lease) {
	s.t.Helper()
	info, err := s.client.Inspect(s.t.Context(), lease.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	if len(info.Holders) != 1 || info.Holders[0].ID != lease.ID() {
		s.t.Fatalf("the lock was released: %+v", info)
	}
}

func (s *site) breakPage(lease *holdfast.Lease) string {
	return s.base + "break?" + url.Values{"name": {lease.Name()}, "id": {lease.ID().String()}}.Encode()
}

func TestAReleaseByForceNeedsCredentialsTheNameAndAReason(t *testing.T) {
	s, x := newSite(t, allowAnn()), newTab(t)
	lease := s.lock("job")

	x.canLogin(credentials("ann", "wrong"))
	x.visit(s.breakPage(lease))
	x.shows("user name and password are needed")
	if x.asked < 2 {
		t.Errorf("asked %d times for credentials", x.asked)
	}
	x.expect("401")
	x.forgive()

	x.canLogin(credentials("ann", "tell-nobody"))
	x.visit(s.base + "lock?name=job")
	x.shows("Release by force…")
	x.press("a.danger")()
	x.shows("The holder may still be running")

	const send = ".break button"
	x.click(send) // both fields are empty
	x.becomes("document.querySelector('#typed:invalid')")
	x.fill("#typed", "jop")
	x.fill("#reason", "stuck")
	x.click(send)
	x.shows("is not that of the lock")
	s.held(lease)
	x.expect("422")
	x.fill("#typed", "job")
	x.fill("#reason", "stuck since noon")
	x.click(send)
	x.shows("The lock was released")
	x.shows("may still be running")
}

func TestAnUpdateDuringAClickDoesNotLoseTheClick(t *testing.T) {
	s, x := newSite(t, allowAnn()), newTab(t)
	s.lock("job")
	x.canLogin(credentials("ann", "tell-nobody"))
	x.visit(s.base + "lock?name=job")
	x.shows("Release by force…")
	release := x.press("a.danger")
	eval[bool](x, "(window.updates = 0, new EventSource(document.getElementById('live').dataset.events).onmessage = () => { updates++ }, true)")
	x.becomes("updates >= 3")
	release()
	x.shows("The holder may still be running")
}

// The browser knows the credentials for the inspector, and would add them to a request.
func TestAnotherSiteCannotRelease(t *testing.T) {
	s, x := newSite(t, allowAnn()), newTab(t)
	lease := s.lock("job")
	x.canLogin(credentials("ann", "tell-nobody"), credentials("ann", "tell-nobody"), credentials("ann", "tell-nobody"))
	x.visit(s.breakPage(lease))
	x.shows("The holder may still be running")

	fields := ""
	for key, value := range map[string]string{"name": "job", "id": lease.ID().String(), "typed": "job", "reason": "because"} {
		fields += fmt.Sprintf("<input name=%s value=%q>", key, html.EscapeString(value))
	}
	x.visit(serve(t, fmt.Sprintf("<form method=post action=%q>%s<button>win a prize</button></form>", s.base+"break", fields)))
	x.click("button")
	x.shows("cross-origin request detected")
	x.expect("403")
	s.held(lease)

	// The other site cannot show the form in a frame, where a user might fill it in unknowingly.
	x.visit(serve(t, fmt.Sprintf("<iframe src=%q></iframe>", s.breakPage(lease))))
	x.expect("frame-ancestors")
	x.forgive()

	// The scripts of the other site cannot read the list. The browser reports that twice, and the second
	// report may come late.
	x.tolerate("net::ERR_FAILED")
	x.visit(serve(t, "<p id=out></p>"))
	x.exec(fmt.Sprintf("fetch(%q).then(() => 'read', () => 'refused').then(t => out.innerText = t)", s.base))
	x.shows("refused")
	x.expect("CORS")
	x.forgive()
}
