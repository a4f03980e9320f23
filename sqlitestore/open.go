package sqlitestore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// schemaVersion is the schema's, in PRAGMA user_version.
	schemaVersion = 1

	// fileMark is in PRAGMA application_id and tells a store's file from any other.
	fileMark = 0x686c6466 // "hldf"

	// pragmas are of a connection. A commit owes no fsync: whoever was promised
	// something dies with the machine. With NORMAL a checkpoint does, so that a power cut
	// cannot damage the file; hence checkpoints are four times as rare as usual, once in
	// 16 MiB.
	pragmas = `PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000;`
)

//go:embed schema.sql
var schema string

var errDamaged = errors.New("the file is damaged: a table is empty that never is; stop all its users, then remove it with the -wal and -shm files beside it")

func init() { store.Register("sqlite", openURL) }

// openURL opens "sqlite:PATH".
func openURL(ctx context.Context, u *store.URL) (store.Store, error) {
	if len(u.Hosts) > 0 || u.User != "" || u.Password() != "" {
		return nil, fmt.Errorf("%w: sqlite URL: has a host, but the file is on this one: write sqlite:/absolute/path or sqlite:relative/path", store.ErrInvalid)
	}
	if err := u.Only(); err != nil {
		return nil, err
	}
	s, err := Open(ctx, u.Path)
	if err != nil {
		return nil, err // and no nil pointer in an interface
	}
	return s, nil
}

// Open opens the locks in a file, which it creates if there is none. The directory
// must exist. A relative path is one from the working directory of now.
//
// Errors: [store.ErrInvalid] if the path cannot be that of a store: it is empty or
// ":memory:", its directory does not exist, the file system is not a local one, or the file
// is something else or of a newer version.
func Open(ctx context.Context, path string) (*Store, error) {
	clock, err := newClock()
	if err != nil {
		return nil, fmt.Errorf("sqlite store %s: %w", path, err)
	}
	return openWith(ctx, path, clock)
}

func openWith(ctx context.Context, path string, clock clock) (*Store, error) {
	path, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		file: file{path: path}, dsn: dsnOf(path), clock: clock,
		turn: turn{taken: make(chan struct{}, 1)}, readTurn: make(chan struct{}, 1), done: make(chan struct{}),
		heartbeat: heartbeat, pushes: pushes{open: listenPush, keep: 2 * heartbeat},
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, s.explain(err)
	}
	if err := s.file.note(); err != nil {
		return nil, s.explain(err)
	}
	if s.conn, err = dial(s.dsn); err != nil {
		return nil, s.explain(err)
	}
	if err := s.setUp(ctx); err != nil {
		s.conn.close()
		return nil, s.explain(err)
	}
	return s, nil
}

// checkPath returns the absolute path of a file that can be a store.
func checkPath(path string) (string, error) {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return "", fmt.Errorf("%w: sqlite path %q: want that of a file, such as /var/lib/myapp/locks.db; for locks in memory use the memory store", store.ErrInvalid, path)
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%w: sqlite path %q: has a null byte; leave it out", store.ErrInvalid, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite path %q: %w", path, err)
	}
	if info, err := os.Stat(abs); err == nil {
		if !info.Mode().IsRegular() {
			return "", fmt.Errorf("%w: sqlite path %s: is no regular file; give the path of a file", store.ErrInvalid, abs)
		}
		return abs, checkFS(abs)
	}
	dir := filepath.Dir(abs)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: sqlite path %s: the directory %s does not exist: create it first", store.ErrInvalid, abs, dir)
	case err != nil:
		return "", fmt.Errorf("sqlite path %s: %w", abs, err)
	case !info.IsDir():
		return "", fmt.Errorf("%w: sqlite path %s: %s is no directory", store.ErrInvalid, abs, dir)
	}
	return abs, checkFS(dir)
}

// creating makes createFile end before another handle of this process finds the file.
var creating sync.Mutex

// createFile creates the file for its user only, unless it exists. It never opens one that
// does: POSIX locks are the process's, and closing any descriptor of a file drops those
// that SQLite holds on it.
func createFile(path string) error {
	creating.Lock()
	defer creating.Unlock()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func dsnOf(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=rw"
}

// setUp makes the connection ready, and the file if it is new.
func (s *Store) setUp(ctx context.Context) error {
	// Before anything is changed, because it may be the file of another program.
	if err := s.retry(ctx, s.checkMark); err != nil {
		return err
	}
	err := s.retry(ctx, func() error {
		row, err := s.conn.get("PRAGMA journal_mode = WAL")
		if err == nil && text(row[0]) != "wal" {
			err = fmt.Errorf("SQLite keeps a journal of the kind %q and not wal: the file system has no shared memory; put the file on another", text(row[0]))
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.conn.script(pragmas); err != nil {
		return err
	}
	tx := &transaction{Store: s, call: callFunc((*transaction).setUpFile)}
	s.transact(ctx, tx)
	return tx.err
}

// checkMark returns an ErrInvalid if the file is not a store's or of a newer version. Until
// then it is taken for somebody else's, which must not be changed or removed.
func (s *Store) checkMark() error {
	row, err := s.conn.get("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version")
	if code := codeOf(err); code == sqlite3.SQLITE_NOTADB || code == sqlite3.SQLITE_CORRUPT {
		return fmt.Errorf("%w: sqlite path %s: is no SQLite database, or a damaged one; give the path of a new file, for locks only", store.ErrInvalid, s.file.path)
	}
	if err != nil {
		return err
	}
	mark, version, tables := integer(row[0]), integer(row[1]), integer(row[2])
	switch {
	case mark != fileMark && (tables > 0 || mark != 0 || version != 0):
		return fmt.Errorf("%w: sqlite path %s: a database of another program; give the path of a file of its own", store.ErrInvalid, s.file.path)
	case version > schemaVersion:
		return fmt.Errorf("%w: sqlite path %s: made by a newer Holdfast (version %d of the schema, this one knows %d): update this program, or give the path of another file",
			store.ErrInvalid, s.file.path, version, schemaVersion)
	}
	return nil
}

// setUpFile makes the tables of a new file, and brings an old one up to now.
func (tx *transaction) setUpFile() error {
	if err := tx.checkMark(); err != nil {
		return err
	}
	row, err := tx.conn.get("PRAGMA user_version")
	if err != nil {
		return err
	}
	clock, version := tx.tokenClock(), integer(row[0])
	if version == 0 {
		err = tx.conn.script(fmt.Sprintf("%s; PRAGMA application_id = %d; PRAGMA user_version = %d", schema, fileMark, schemaVersion))
		if err == nil {
			_, err = tx.conn.exec("INSERT INTO meta (one, clock, base, low, high, sweep, seen) VALUES (1, ?, ?, 0, ?, '', ?)",
				tx.clock.boot, clock, clock+tx.now/tokenUnit+tokensAhead, tx.now)
		}
		tx.base, tx.recorded = clock, tx.now
		return err
	}
	row, err = tx.conn.get("SELECT clock, base, high, sweep, seen FROM meta")
	if err != nil {
		return err
	}
	if row == nil {
		return errDamaged
	}
	boot, high, sweep, seen := text(row[0]), integer(row[2]), text(row[3]), integer(row[4])
	tx.base = integer(row[1])
	if boot != tx.clock.boot {
		if err := tx.otherBoot(seen, high); err != nil {
			return err
		}
	}
	tx.recorded = seen
	if err := tx.recordTime(tx.now); err != nil {
		return err
	}
	next, err := tx.sweepFrom(sweep, sweepOpen)
	if err == nil && next != sweep {
		_, err = tx.conn.exec("UPDATE meta SET sweep = ?", next)
	}
	return err
}
