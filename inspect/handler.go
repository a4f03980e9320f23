package inspect

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	perPage    = 100
	maxStreams = 100              // browsers that listen
	maxForm    = 16 << 10         // bytes
	writeLimit = 10 * time.Second // a browser that does not read is dropped
	maxReason  = 500              // bytes
)

//go:embed static
var static embed.FS

//go:embed templates
var texts embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"short": short, "percent": percent, "clock": clock, "plot": plot, "weight": weight, "add": func(a, b int) int { return a + b },
}).ParseFS(texts, "templates/*.html"))

type handler struct {
	settings
	client  *holdfast.Client
	watcher *watcher
	streams chan struct{} // one value for each browser that listens
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
	h.watcher = newWatcher(c, h.interval)
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.showList)
	mux.HandleFunc("GET /lock", h.showLock)
	mux.HandleFunc("GET /events", h.stream)
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /break", h.askBreak)
	mux.HandleFunc("POST /break", h.doBreak)
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(files)))
	below := http.StripPrefix(strings.TrimSuffix(h.base, "/"), mux)
	return secure(http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path+"/" == h.base {
			http.Redirect(w, r, h.base, http.StatusTemporaryRedirect)
			return
		}
		below.ServeHTTP(w, r)
	})))
}

// secure sets the headers that keep a browser from running or showing what is not ours.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// A page is what the templates show.
type page struct {
	Base, Title string
	MayBreak    bool
	Refresh     int // seconds, for browsers without JavaScript
	At          time.Time
	Failure     string
	Trips       trips
	Events      string // address of the stream of this page

	// The list.
	Locks           []holdfast.Info
	Query           string
	Total, Number   int
	Previous, Next  string
	Cut             bool
	HeldNow, Queued int

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
	p := page{Base: h.base, Title: h.title, MayBreak: h.check != nil, Refresh: max(2, int(h.interval/time.Second)), At: s.at, Trips: s.trips, Cut: s.cut}
	if s.err != nil {
		p.Failure = s.err.Error()
	}
	return p
}

// listPage is the list that a request asks for.
func (h *handler) listPage(s *snapshot, q url.Values) page {
	p := h.page(s)
	p.Query = q.Get("q")
	var found []holdfast.Info
	for _, lock := range s.locks {
		if strings.HasPrefix(lock.Name, p.Query) {
			found = append(found, lock)
			p.HeldNow += len(lock.Holders)
			p.Queued += len(lock.Waiters)
		}
	}
	p.Total = len(found)
	number, _ := strconv.Atoi(q.Get("page"))
	p.Number = min(max(number, 1), max(1, (len(found)+perPage-1)/perPage))
	from := (p.Number - 1) * perPage
	p.Locks = found[from:min(from+perPage, len(found))]
	link := func(n int) string {
		return h.base + "?" + url.Values{"q": {p.Query}, "page": {strconv.Itoa(n)}}.Encode()
	}
	if p.Number > 1 {
		p.Previous = link(p.Number - 1)
	}
	if from+perPage < len(found) {
		p.Next = link(p.Number + 1)
	}
	p.Events = h.base + "events?" + url.Values{"q": {p.Query}, "page": {strconv.Itoa(p.Number)}}.Encode()
	return p
}

// lockPage is the page of one lock.
func (h *handler) lockPage(s *snapshot, name string) page {
	p := h.page(s)
	p.Name = name
	lock, ok := s.find(name)
	p.Lock, p.Free = lock, !ok
	p.Record = h.watcher.past(name)
	p.Events = h.base + "events?" + url.Values{"name": {name}}.Encode()
	return p
}

func (h *handler) showList(w http.ResponseWriter, r *http.Request) {
	h.show(w, r, "list", func(s *snapshot) page { return h.listPage(s, r.URL.Query()) })
}

func (h *handler) showLock(w http.ResponseWriter, r *http.Request) {
	name, ok := nameOf(w, r.URL.Query())
	if ok {
		h.show(w, r, "lock", func(s *snapshot) page { return h.lockPage(s, name) })
	}
}

// show writes a page made of the newest listing.
func (h *handler) show(w http.ResponseWriter, r *http.Request, name string, make func(*snapshot) page) {
	s, err := h.watcher.fresh(r.Context())
	if err != nil {
		return // the browser is gone
	}
	status := http.StatusOK
	if s.err != nil {
		status = http.StatusBadGateway
	}
	render(w, status, name, make(s))
}

func render(w http.ResponseWriter, status int, name string, p page) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name+".html", p); err != nil {
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		slog.Error("holdfast: inspector", "error", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeLimit))
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// nameOf returns the name of a lock that a request is about.
func nameOf(w http.ResponseWriter, v url.Values) (string, bool) {
	name := v.Get("name")
	if name == "" || len(name) > 1024 {
		http.Error(w, "give the name of a lock, of at most 1024 bytes", http.StatusBadRequest)
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
	part, build := "rows", func(s *snapshot) page { return h.listPage(s, r.URL.Query()) }
	if r.URL.Query().Has("name") {
		name, ok := nameOf(w, r.URL.Query())
		if !ok {
			return
		}
		part, build = "details", func(s *snapshot) page { return h.lockPage(s, name) }
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for {
		s, next := h.watcher.look()
		if s != nil {
			var b bytes.Buffer
			if err := pages.ExecuteTemplate(&b, part, build(s)); err != nil {
				slog.Error("holdfast: inspector", "error", err)
				return
			}
			var message strings.Builder
			for line := range strings.Lines(b.String()) {
				message.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
			}
			message.WriteString("\n")
			control.SetWriteDeadline(time.Now().Add(writeLimit))
			if _, err := w.Write([]byte(message.String())); err != nil {
				return
			}
			if control.Flush() != nil {
				return
			}
			control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, even if nothing is written
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}

// health tells whether the store answers.
func (h *handler) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := h.client.Inspect(ctx, probeName); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte("the store does not answer\n"))
		return
	}
	w.Write([]byte("ok\n"))
}

// mayBreak reports who the user is. It asks for credentials if there are none.
func (h *handler) mayBreak(w http.ResponseWriter, r *http.Request) (user string, ok bool) {
	if h.check == nil {
		http.Error(w, "this inspector only reads", http.StatusForbidden)
		return "", false
	}
	user, password, given := r.BasicAuth()
	if !given || !h.check(user, password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="holdfast", charset="UTF-8"`)
		http.Error(w, "user name and password are needed", http.StatusUnauthorized)
		return "", false
	}
	return user, true
}

// askBreak shows the form for a forced release.
func (h *handler) askBreak(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.mayBreak(w, r); !ok {
		return
	}
	h.breakForm(w, r, r.URL.Query(), http.StatusOK, "")
}

// breakForm shows the grant as it is now, with a message about the last try.
func (h *handler) breakForm(w http.ResponseWriter, r *http.Request, v url.Values, status int, message string) {
	name, ok := nameOf(w, v)
	if !ok {
		return
	}
	id, err := holdfast.ParseID(v.Get("id"))
	if err != nil {
		http.Error(w, "give the ID of a grant, as the page of the lock shows it", http.StatusBadRequest)
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
			render(w, status, "break", p)
			return
		}
	}
	p.Message = "This grant does not hold the lock any more. Nothing was released."
	render(w, http.StatusConflict, "message", p)
}

// doBreak releases exactly the grant that the user saw.
func (h *handler) doBreak(w http.ResponseWriter, r *http.Request) {
	user, ok := h.mayBreak(w, r)
	if !ok {
		return
	}
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
		http.Error(w, "give the ID of a grant, as the page of the lock shows it", http.StatusBadRequest)
		return
	}
	err = h.client.Break(r.Context(), name, id)
	what := "holdfast: lock released by force"
	if err != nil {
		what = "holdfast: forced release failed"
	}
	h.logger.Warn(what, "name", name, "id", id.String(), "user", user, "from", r.RemoteAddr, "reason", reason, "error", err)
	p := page{Base: h.base, Title: h.title, Name: name, At: time.Now(), Message: "The lock was released. Its holder may still be running: it learns of this at its next renewal."}
	status := http.StatusOK
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		status, p.Message = http.StatusConflict, "This grant does not hold the lock any more. Nothing was released."
	case err != nil:
		status, p.Message = http.StatusBadGateway, err.Error()
	}
	render(w, status, "message", p)
}
