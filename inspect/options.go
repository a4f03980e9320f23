package inspect

import (
	"context"
	"log/slog"
	pathpkg "path"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// An Option sets up a handler.
type Option func(*settings)

type settings struct {
	base     string // starts and ends with a slash
	title    string
	interval time.Duration
	logger   *slog.Logger
	checks   func(context.Context) []store.Finding
	check    func(user, password string) bool // nil if the handler only reads
}

// At sets the path that the handler is mounted at, such as "/locks/". The default is "/".
func At(path string) Option {
	return func(s *settings) {
		if s.base = pathpkg.Clean("/" + path); s.base != "/" {
			s.base += "/"
		}
	}
}

// Title sets the title of the pages. The default is the kind of store.
func Title(text string) Option { return func(s *settings) { s.title = text } }

// Every sets how often the store is listed while a page is open. The default is 2 seconds, and
// the minimum is 100 milliseconds.
func Every(d time.Duration) Option {
	return func(s *settings) { s.interval = max(d, 100*time.Millisecond) }
}

// Logger sets where forced releases are logged, each with the user, the reason and the grant. Wrong
// passwords and internal errors are logged there too. The default is slog.Default().
func Logger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// Checks makes the pages show the findings of run that are warnings or failures, and the difference
// between the clocks of the store and of this host. Run is usually the Diagnose method of a
// store.Diagnoser with a fixed TTL. It is called once a minute while a page is open.
func Checks(run func(context.Context) []store.Finding) Option {
	return func(s *settings) { s.checks = run }
}

// AllowBreak lets users release locks by force, after HTTP basic authentication: check reports whether
// the user name and the password are accepted. Use TLS if the handler is reached over a network.
func AllowBreak(check func(user, password string) bool) Option {
	return func(s *settings) { s.check = check }
}
