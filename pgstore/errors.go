package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// badIsolation is the code of the functions' error for transactions that are not read committed.
const badIsolation = "HF001"

// lockTimeout is the code of the server's error for a lock that was not granted in time.
const lockTimeout = "55P03"

// advice says what to do about an error of the server, by its code.
var advice = map[string]string{
	badIsolation: "locks need read committed; run ALTER ROLE … SET default_transaction_isolation = 'read committed'",
	"25006":      "the server is read only, perhaps a standby; name the primary, or several hosts with target_session_attrs=read-write",
	"3D000":      "create the database, or name another in the URL",
	"3F000":      "run holdfast migrate",
	"42501":      "this role lacks a right; the GRANT statements are in the package documentation, and in holdfast help schema",
	"42883":      "run holdfast migrate; if a newer version of Holdfast has migrated the schema, update this program",
	"53100":      "the disk of the server is full",
	"53300":      "the server has no free connection; raise max_connections, or use a pooler",
	lockTimeout:  "another session has locked the row of this name; find it with pg_blocking_pids, and end its transaction",
	"57014":      "statement_timeout is too short for this role or database, or an administrator cancelled the statement",
	"28P01":      "check the user and the password",
	"28000":      "check the user and the password, and whether pg_hba.conf allows this user from this host",
}

// errLocked is the error of a call that was left out because another session has locked its row.
var errLocked = errors.New("postgres store: " + advice[lockTimeout])

// explain adds advice to the error of a call. Errors of pgx never contain the password.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrClosed) {
		return err
	}
	for code, what := range advice {
		if isCode(err, code) {
			return fmt.Errorf("postgres store: %w: %s", oneLine{err}, what)
		}
	}
	return fmt.Errorf("postgres store: %w", oneLine{err})
}

// A oneLine is an error whose text is one line. The error of a failed connection has a line for
// each attempt, with TLS and without, and most of the lines are the same.
type oneLine struct{ err error }

func (e oneLine) Error() string {
	var lines []string
	for line := range strings.Lines(e.err.Error()) {
		if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

func (e oneLine) Unwrap() error { return e.err }
