package browser

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/inspect"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// chromium is the browser that all tests share.
var chromium context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	program, err := find("chromium", "chromium-browser", "google-chrome")
	if err != nil {
		fmt.Fprintln(os.Stderr, err, "(scripts/deps installs it)")
		return 1
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("lang", "en-US"), chromedp.Flag("disable-field-trial-config", true))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // the sandbox does not work for root
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	ctx, stop = chromedp.NewContext(ctx)
	defer stop()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cannot start", program+":", err)
		return 1
	}
	chromium = ctx
	code := m.Run()
	if err := chromedp.Cancel(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cannot stop the browser:", err)
		return 1
	}
	return code
}

// find returns the path of the first program that is installed.
func find(names ...string) (path string, err error) {
	for _, name := range names {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}

// A site is an inspector on a server, with the store that it shows.
type site struct {
	t      *testing.T
	store  store.Store
	client *holdfast.Client
	server *httptest.Server
	base   string
}

func newSite(t *testing.T, opts ...inspect.Option) *site {
	t.Helper()
	s := &site{t: t, store: memstore.New()}
	s.client = s.open("web-1/4121")
	opts = append([]inspect.Option{inspect.At("/locks"), inspect.Every(100 * time.Millisecond), inspect.Logger(slog.New(slog.DiscardHandler))}, opts...)
	mux := http.NewServeMux()
	mux.Handle("/locks/", inspect.Handler(s.open("inspector"), opts...))
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.server = httptest.NewServer(mux)
	s.base = s.server.URL + "/locks/"
	t.Cleanup(func() {
		s.server.CloseClientConnections() // streams
		s.server.Close()
	})
	return s
}

// open returns a client of the store.
func (s *site) open(owner string) *holdfast.Client {
	s.t.Helper()
	return suites.Client(s.t, s.store, holdfast.WithOwner(owner))
}

func (s *site) lock(name string, opts ...holdfast.CallOption) *holdfast.Lease {
	s.t.Helper()
	lease, err := s.client.Lock(s.t.Context(), name, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// wait queues a client for a name that is held.
func (s *site) wait(owner, name string) {
	s.t.Helper()
	c, ctx := s.open(owner), s.t.Context()
	go c.Lock(ctx, name)
	suites.Eventually(s.t, owner+" does not wait for "+name, func() bool {
		now, err := s.client.Inspect(ctx, name)
		return err == nil && slices.ContainsFunc(now.Waiters, func(w holdfast.Waiter) bool { return w.Owner == owner })
	})
}

func (s *site) unlock(lease *holdfast.Lease) {
	s.t.Helper()
	if err := lease.Unlock(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// A tab is a page of the browser, with its own cookies and credentials. The test fails if the
// page writes to the console, violates its policy or opens a dialog.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu        sync.Mutex
	problems  []string
	tolerated string                         // a part of problems that do not fail the test
	logins    []*fetch.AuthChallengeResponse // answers to the next requests for credentials
	asked     int                            // number of requests for credentials
}

func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	x := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // opens the tab
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	on(&wg, chromedp.Console(ctx), func(m chromedp.ConsoleMessage) { x.problem(m.String() + " " + m.URL) })
	on(&wg, chromedp.Events(ctx, page.JavascriptDialogOpening), func(e page.EventJavascriptDialogOpening) {
		x.problem("a dialog: " + e.Message)
		chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	})
	on(&wg, chromedp.Events(ctx, fetch.RequestPaused), func(e fetch.EventRequestPaused) {
		chromedp.Call(ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
	})
	on(&wg, chromedp.Events(ctx, fetch.AuthRequired), func(e fetch.EventAuthRequired) {
		chromedp.Call(ctx, fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: x.login()})
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		for _, problem := range x.problems {
			if x.tolerated == "" || !strings.Contains(problem, x.tolerated) {
				t.Error("in the browser: " + problem)
			}
		}
	})
	return x
}

// on calls do for every event, until the tab is closed.
func on[E any](wg *sync.WaitGroup, events iter.Seq2[E, error], do func(E)) {
	wg.Go(func() {
		for e, err := range events {
			if err != nil {
				return
			}
			do(e)
		}
	})
}

// problem records something that a page must not do.
func (x *tab) problem(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.problems = append(x.problems, text)
}

// login returns the answer to a request for credentials.
func (x *tab) login() *fetch.AuthChallengeResponse {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	if len(x.logins) == 0 {
		return &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth}
	}
	answer := x.logins[0]
	x.logins = x.logins[1:]
	return answer
}

// expect removes the problem whose text contains part. The test fails if there is none.
func (x *tab) expect(part string) {
	x.t.Helper()
	suites.Eventually(x.t, "no message in the console: "+part, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		i := slices.IndexFunc(x.problems, func(problem string) bool { return strings.Contains(problem, part) })
		if i >= 0 {
			x.problems = slices.Delete(x.problems, i, i+1)
		}
		return i >= 0
	})
}

// limited returns the context of a call that must not hang.
func (x *tab) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(x.ctx, suites.Patience)
}

func (x *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	x.t.Helper()
	ctx, cancel := x.limited()
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		x.t.Fatal(err)
	}
}

// call calls a command of the browser.
func call[P, R any](x *tab, command cdp.Command[P, R], params P) R {
	x.t.Helper()
	ctx, cancel := x.limited()
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		x.t.Fatal(err)
	}
	return result
}

func (x *tab) visit(url string) {
	x.t.Helper()
	x.do(chromedp.Navigate(url))
}

// eval returns the value of an expression.
func eval[T any](x *tab, expression string) T {
	x.t.Helper()
	ctx, cancel := x.limited()
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		x.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// exec runs a statement.
func (x *tab) exec(statement string) {
	x.t.Helper()
	eval[bool](x, "("+statement+", true)")
}

// shows waits until the page shows a text.
func (x *tab) shows(text string) {
	x.t.Helper()
	x.becomes(fmt.Sprintf("document.body?.innerText.includes(%q)", text))
}

// hides waits until the page does not show a text.
func (x *tab) hides(text string) {
	x.t.Helper()
	x.becomes(fmt.Sprintf("!document.body?.innerText.includes(%q)", text))
}

// becomes waits until an expression is true. While a page is being replaced, the expression has
// no value.
func (x *tab) becomes(expression string) {
	x.t.Helper()
	ctx, cancel := x.limited()
	defer cancel()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && is {
			return
		}
		if ctx.Err() != nil {
			x.t.Fatalf("this did not become true: %s (%v); the page:\n%s", expression, err, eval[string](x, "document.documentElement.outerHTML"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// canLogin lets the tab answer requests for credentials with these logins, in order. When none is
// left, the tab cancels.
func (x *tab) canLogin(logins ...*fetch.AuthChallengeResponse) {
	x.t.Helper()
	x.mu.Lock()
	x.logins = logins
	x.mu.Unlock()
	handle := true
	call(x, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &handle})
}

func credentials(user, password string) *fetch.AuthChallengeResponse {
	return &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: user, Password: password}
}

// allowAnn lets ann release locks.
func allowAnn() inspect.Option {
	return inspect.AllowBreak(func(user, password string) bool { return user == "ann" && password == "tell-nobody" })
}

// serve serves a page of another site.
func serve(t *testing.T, html string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte("<!doctype html><link rel=icon href=data:,>" + html))
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1) // another site, not only another port
}
