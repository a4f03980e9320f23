package inspect

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/printable"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	perPage    = 100
	maxStreams = 100              // browsers that listen
	maxForm    = 16 << 10         // bytes
	maxReason  = 500              // bytes
	writeLimit = 10 * time.Second // a browser that does not read is dropped
	readLimit  = 10 * time.Second // a browser that does not send its form is dropped
	breakLimit = 10 * time.Second
	clockCheck = "store.clock" // the finding about the clocks of the store and of this host
	healthAge  = time.Second   // how long a result of the health check is reused
	notHeld    = "This grant no longer holds the lock. This request released nothing."
)

//go:embed static
var static embed.FS

//go:embed templates
var texts embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"text": printable.Escape, "short": short, "clock": clock, "date": date, "iso": iso, "weight": weight, "whole": whole,
	"firstHolders": first[holdfast.Holder], "firstWaiters": first[holdfast.Waiter],
	"add":  func(a, b int) int { return a + b },
	"rest": func(shown, all int) int { return max(0, all-shown) },
}).ParseFS(texts, "templates/*.html"))

type handler struct {
	settings
	client  *holdfast.Client
	watcher *watcher
	streams chan struct{} // one value for each browser that receives a stream
	servers sync.Map      // of *http.Server: see shutdown

	healthMu sync.Mutex // held during the call to the store, so that concurrent requests share one call
	healthAt time.Time
	healthy  bool
}

// Handler returns a handler that shows the locks in the namespace of a client.
func Handler(c *holdfast.Client, opts ...Option) http.Handler {
	h := &handler{settings: settings{base: "/", interval: 2 * time.Second, logger: slog.Default()}, client: c, streams: make(chan struct{}, maxStreams)}
	for _, opt := range opts {
		opt(&h.settings)
	}
	if h.title == "" {
		h.title = c.Capabilities().Store
	}
	h.watcher = &watcher{client: c, interval: h.interval, check: h.checks, next: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.show("list", h.listView))
	mux.HandleFunc("GET /lock", h.show("lock", h.lockView))
	mux.HandleFunc("GET /events", h.stream)
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /break", h.mayBreak(func(w http.ResponseWriter, r *http.Request, _ string) {
		h.breakForm(w, r, r.URL.Query(), http.StatusOK, "")
	}))
	mux.HandleFunc("POST /break", h.mayBreak(h.doBreak))
	mux.Handle("GET /static/", http.FileServerFS(static))
	below := http.StripPrefix(strings.TrimSuffix(h.base, "/"), mux)
	return protect(http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path+"/" == h.base {
			http.Redirect(w, r, h.base, http.StatusTemporaryRedirect)
			return
		}
		below.ServeHTTP(w, r)
	})))
}

// protect sets the headers that keep a browser from running foreign scripts in a page and from
// showing a page inside another site. It limits how long the body of a request may take, even if it
// is not used: the server reads it before it handles the next request of the connection. A request
// without a body has no limit, because the server reads during it only to see that the browser is gone.
func protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-store")
		limit := time.Time{}
		if r.ContentLength != 0 {
			limit = time.Now().Add(readLimit)
		}
		http.NewResponseController(w).SetReadDeadline(limit)
		next.ServeHTTP(w, r)
	})
}

type page struct {
	Base, Title string
	MayBreak    bool
	Refresh     int // seconds, for browsers without JavaScript
	At          time.Time
	Age         time.Duration // of the listing
	Failure     string
	Trips       trips
	seen        map[holdfast.ID]sighting
	Clock       string          // how far the clock of the store is from that of this host; empty if unknown
	Findings    []store.Finding // findings to show to the user
	Events      string          // address of the stream of this page

	// The list.
	Known          bool // the store was listed, even if it does not answer now
	Filter         filter
	Locks          []holdfast.Info
	Read, Total    int // names that were listed, and those of them that contain the text of the filter
	Shown          int // locks on all pages
	Waiters        int
	States, Orders []choice
	Number, Pages  int
	Previous, Next string
	Cut            bool // not all names were listed
	counts         map[string][]int

	// One lock.
	Name   string
	Lock   holdfast.Info
	Free   bool
	Record record

	// A forced release.
	Holder  holdfast.Holder
	Message string
}

func (h *handler) page(s *snapshot) page {
	p := page{Base: h.base, Title: h.title, MayBreak: h.check != nil, Refresh: max(2, int(h.interval/time.Second)), At: s.at, Age: time.Since(s.at), Trips: s.trips, Known: s.seen != nil, seen: s.seen, counts: s.counts}
	if s.err != nil {
		p.Failure = s.err.Error()
	}
	for _, f := range s.findings {
		switch {
		case f.ID == clockCheck && f.Level == store.LevelOK:
			p.Clock = f.Found
		case f.Level >= store.LevelWarning:
			p.Findings = append(p.Findings, f)
		}
	}
	return p
}

// A view makes a page from a listing.
type view func(*snapshot) page

// listView returns the view of the list that a request filters, or nil after an error reply.
func (h *handler) listView(w http.ResponseWriter, r *http.Request) view {
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	return func(s *snapshot) page { return h.listPage(r.Context(), s, f) }
}

// lockView returns the view of the lock in a request, or nil after an error reply.
func (h *handler) lockView(w http.ResponseWriter, r *http.Request) view {
	name, ok := nameOf(w, r.URL.Query())
	if !ok {
		return nil
	}
	return func(s *snapshot) page { return h.lockPage(r.Context(), s, name) }
}

func (h *handler) listPage(ctx context.Context, s *snapshot, f filter) page {
	p := h.page(s)
	part := h.watcher.under(ctx, s, f.Prefix)
	if part.err != nil {
		p.Failure = part.err.Error()
	}
	matching := f.Containing(part.locks)
	for _, lock := range matching {
		p.Waiters += len(lock.Waiters)
	}
	found := f.InStates(matching)
	p.Read, p.Total, p.Shown, p.Cut = len(part.locks), len(matching), len(found), part.cut
	p.States, p.Orders = f.stateChoices(h.base, matching), f.orderChoices(h.base)
	p.Pages = max(1, (len(found)+perPage-1)/perPage)
	p.Number = min(max(f.page, 1), p.Pages)
	from := (p.Number - 1) * perPage
	p.Locks = found[from:min(from+perPage, len(found))]
	link := func(path string, n int) string {
		f.page = n
		return h.base + path + f.query()
	}
	if p.Number > 1 {
		p.Previous = link("", p.Number-1)
	}
	if p.Number < p.Pages {
		p.Next = link("", p.Number+1)
	}
	p.Events = link("events", p.Number)
	p.Filter = f
	return p
}

func (h *handler) lockPage(ctx context.Context, s *snapshot, name string) page {
	p := h.page(s)
	p.Name = name
	lock, ok := s.find(name)
	if !ok && s.cut { // the lock may be beyond the end of the listing
		var err error
		if lock, err = h.client.Inspect(ctx, name); err != nil {
			p.Failure = err.Error()
		}
	}
	p.Lock, p.Free = lock, len(lock.Holders)+len(lock.Waiters) == 0
	p.Record = h.watcher.past(name)
	p.Events = h.base + "events?" + url.Values{"name": {name}}.Encode()
	return p
}

// show returns a handler that writes a page of the newest listing.
func (h *handler) show(name string, viewOf func(http.ResponseWriter, *http.Request) view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		build := viewOf(w, r)
		if build == nil {
			return
		}
		s, err := h.watcher.fresh(r.Context())
		if err != nil {
			return // the browser is gone
		}
		status := http.StatusOK
		if s.err != nil {
			status = http.StatusBadGateway
		}
		h.render(w, status, name, build(s))
	}
}

func (h *handler) render(w http.ResponseWriter, status int, name string, p page) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name+".html", p); err != nil {
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		h.logger.Error("holdfast: inspector", "error", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeLimit))
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func nameOf(w http.ResponseWriter, v url.Values) (string, bool) {
	name := v.Get("name")
	if name == "" || len(name) > store.MaxName {
		http.Error(w, fmt.Sprintf("want the name of a lock, of at most %d bytes", store.MaxName), http.StatusBadRequest)
		return "", false
	}
	return name, true
}

// stream sends the changing part of a page after every listing, as server-sent events.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		http.Error(w, "too many browsers listen; this page reloads itself", http.StatusServiceUnavailable)
		return
	}
	part, viewOf := "rows", h.listView
	if r.URL.Query().Has("name") {
		part, viewOf = "details", h.lockView
	}
	build := viewOf(w, r)
	if build == nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control, ends := http.NewResponseController(w), h.shutdown(r)
	for {
		s, next := h.watcher.look()
		if s != nil {
			var b bytes.Buffer
			if err := pages.ExecuteTemplate(&b, part, build(s)); err != nil {
				h.logger.Error("holdfast: inspector", "error", err)
				return
			}
			text := strings.TrimSuffix(lineEnds.Replace(b.String()), "\n")
			control.SetWriteDeadline(time.Now().Add(writeLimit))
			_, err := fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(text, "\n", "\ndata: "))
			if err != nil || control.Flush() != nil {
				return
			}
			control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, even if nothing is written
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		case <-ends:
			return
		}
	}
}

// shutdown returns a channel that is closed when the server of a request shuts down, which waits for streams.
func (h *handler) shutdown(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	ends := make(chan struct{})
	known, found := h.servers.LoadOrStore(server, ends)
	if !found {
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(ends) }))
	}
	return known.(chan struct{})
}

// lineEnds replaces the line ends of server-sent events by one that the stream handles. A carriage
// return in a text would otherwise end the line, and what follows would be a field of the event.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (h *handler) health(w http.ResponseWriter, r *http.Request) {
	if !h.answers() {
		http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n"))
}

// answers reports whether the store answers, or has answered less than healthAge ago.
func (h *handler) answers() bool {
	h.healthMu.Lock()
	defer h.healthMu.Unlock()
	if time.Since(h.healthAt) >= healthAge {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := h.client.Inspect(ctx, probeName)
		h.healthAt, h.healthy = time.Now(), err == nil
	}
	return h.healthy
}

// mayBreak returns a handler that calls next with a user who may break locks.
func (h *handler) mayBreak(next func(w http.ResponseWriter, r *http.Request, user string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h.check == nil {
			http.Error(w, "this inspector only reads", http.StatusForbidden)
			return
		}
		user, password, given := r.BasicAuth()
		if !given || !h.check(user, password) {
			if given { // the user name is not logged, because it may be a password in the wrong field
				h.logger.Warn("holdfast: forced release refused: wrong user name or password", "from", r.RemoteAddr)
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="holdfast", charset="UTF-8"`)
			http.Error(w, "user name and password are needed", http.StatusUnauthorized)
			return
		}
		next(w, r, user)
	}
}

// breakForm shows the form with the grant as it is now, and a message about the last attempt.
func (h *handler) breakForm(w http.ResponseWriter, r *http.Request, v url.Values, status int, message string) {
	name, ok := nameOf(w, v)
	if !ok {
		return
	}
	id, err := holdfast.ParseID(v.Get("id"))
	if err != nil {
		http.Error(w, "want the ID of a grant, as the page of the lock shows it", http.StatusBadRequest)
		return
	}
	info, err := h.client.Inspect(r.Context(), name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	p := page{Base: h.base, Title: h.title, Name: name, At: time.Now(), Message: message}
	for _, holder := range info.Holders {
		if holder.ID == id {
			p.Holder = holder
			h.render(w, status, "break", p)
			return
		}
	}
	p.Message = notHeld
	h.render(w, http.StatusConflict, "message", p)
}

// doBreak ends exactly the grant that the user saw.
func (h *handler) doBreak(w http.ResponseWriter, r *http.Request, user string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	name, reason := r.PostForm.Get("name"), strings.TrimSpace(r.PostForm.Get("reason"))
	switch {
	case r.PostForm.Get("typed") != name:
		h.breakForm(w, r, r.PostForm, http.StatusUnprocessableEntity, "The name that you typed is not that of the lock.")
		return
	case reason == "" || len(reason) > maxReason:
		h.breakForm(w, r, r.PostForm, http.StatusUnprocessableEntity, "Give a reason, of at most 500 bytes.")
		return
	}
	id, err := holdfast.ParseID(r.PostForm.Get("id"))
	if err != nil {
		http.Error(w, "want the ID of a grant, as the page of the lock shows it", http.StatusBadRequest)
		return
	}
	// The release continues if the browser disconnects, so that its outcome is known and logged.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	err = h.client.Break(ctx, name, id)
	p := page{Base: h.base, Title: h.title, Name: name, At: time.Now(), Message: "The lock was released. If it was held, its holder may still be running: it learns of this at its next renewal."}
	what, status := "holdfast: lock released by force", http.StatusOK
	if err != nil {
		what, status, p.Message = "holdfast: forced release failed", http.StatusBadGateway, err.Error()
	}
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		status, p.Message = http.StatusConflict, notHeld
	case errors.Is(err, holdfast.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		what = "holdfast: not known whether a lock was released by force"
		p.Message = "It is not known whether the lock was released. If it was, its holder may still be running: " + p.Message
	}
	h.logger.Warn(what, "name", name, "id", id.String(), "user", user, "from", r.RemoteAddr, "reason", reason, "error", err)
	h.render(w, status, "message", p)
}
