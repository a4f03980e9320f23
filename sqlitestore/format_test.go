package sqlitestore_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestFormats(t *testing.T) {
	suites.Formats(t, func(t *testing.T) suites.FormatServer {
		path := newPath(t)
		// The clock of a file starts with the machine, so the test has one that stands still.
		var now atomic.Int64
		now.Store(int64(time.Hour))
		clock := sqlitestore.Clock{
			Boot: "boot", Steady: true,
			Now:  now.Load,
			Wall: func() int64 { return time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() + now.Load() },
		}
		return suites.FormatServer{
			Open: func(t testing.TB) store.Store {
				s, err := sqlitestore.OpenAt(t.Context(), path, clock)
				must(t, err)
				sqlitestore.Deafen(s) // so that no address is in the file
				return s
			},
			Dump: func(t testing.TB) []string {
				lines, err := sqlitestore.Statements(path)
				must(t, err)
				return lines
			},
			Load: func(t testing.TB, lines []string) {
				must(t, os.WriteFile(path, nil, 0o600))
				for _, line := range lines {
					if err := sqlitestore.Script(path, line); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
				}
			},
			Expire: func() { now.Add(int64(time.Minute)) },
		}
	})
}
