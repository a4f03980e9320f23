package sqlitestore

import (
	"cmp"
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

	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	schemaVersion = 1          // in PRAGMA user_version
	fileMark      = 0x686c6466 // "hldf", in PRAGMA application_id

	// pragmas are the settings of a connection. A commit needs no fsync, because all holders end
	// when the machine goes down. With NORMAL only a checkpoint calls fsync, so that a power cut
	// cannot damage the file. The store makes its own checkpoints: see boundLog.
	pragmas = `PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = %d`
)

//go:embed schema.sql
var schema string

var errDamaged = errors.New("the file is damaged: the table meta is empty; stop all its users, then remove it with the -wal and -shm files beside it")

func init() { store.Register("sqlite", openURL) }

func openURL(ctx context.Context, u *store.URL) (store.Store, error) {
	if len(u.Hosts) > 0 || u.User != "" || u.Password() != "" {
		return nil, fmt.Errorf("%w: sqlite URL: has a host or a user, but the file is local: write sqlite:/absolute/path or sqlite:relative/path", store.ErrInvalid)
	}
	if strings.Contains(u.Path, "://") { // it may contain a password, and errors show the path
		return nil, fmt.Errorf("%w: sqlite URL: has another URL as its path: write sqlite:/absolute/path, or the other URL alone", store.ErrInvalid)
	}
	if err := u.Only(); err != nil {
		return nil, err
	}
	return handle.Opened(Open(ctx, u.Path))
}

// Open opens a file of locks, and creates it if it does not exist. Its directory must exist. A
// relative path is resolved now, so a later change of the working directory has no effect.
//
// Open returns an error that matches [store.ErrInvalid] if the path is empty or ":memory:", if
// its directory does not exist, if the file system is not local, or if the file belongs to
// another program or to a newer version of this package.
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
		file: file{path: path}, clock: clock,
		writes: writeQueue{turn: make(chan struct{}, 1)}, readTurn: make(chan struct{}, 1),
		heartbeat: heartbeat, pushes: pushes{open: listenPush, waits: wake.Table[struct{}]{Keep: 2 * heartbeat}},
	}
	s.life.Begin("sqlite store")
	for _, step := range []func() error{
		ctx.Err,
		func() error { return checkRemains(path) },
		func() error { return createFile(path) },
		s.file.note,
		func() (err error) { s.conn, err = dial(dataSource(path)); return err },
	} {
		if err := step(); err != nil {
			return nil, s.explain(err)
		}
	}
	if err := s.setUp(ctx); err != nil {
		s.conn.close()
		return nil, s.explain(err)
	}
	return s, nil
}

// checkPath checks the path of a store and makes it absolute.
func checkPath(path string) (string, error) {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return "", fmt.Errorf("%w: sqlite path %q: want the path of a file, such as /var/lib/myapp/locks.db; for locks in memory use the memory store", store.ErrInvalid, path)
	}
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%w: sqlite path %q: contains a null byte; remove it", store.ErrInvalid, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite path %q: %w", path, err)
	}
	if info, err := os.Stat(abs); err == nil {
		if !info.Mode().IsRegular() {
			return "", fmt.Errorf("%w: sqlite path %s: is not a regular file; use another path", store.ErrInvalid, abs)
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
		return "", fmt.Errorf("%w: sqlite path %s: %s is not a directory", store.ErrInvalid, abs, dir)
	}
	return abs, checkFS(dir)
}

// checkRemains returns an error if the file was removed and its -wal file was not: a new file would be
// combined with that log. It looks for the log first, because another process may be creating both.
func checkRemains(path string) error {
	_, walErr := os.Lstat(path + "-wal")
	if _, err := os.Stat(path); walErr != nil || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the file was removed, but not the -wal and -shm files beside it, which other programs may still use; stop all programs that use the file, then remove %[1]s-wal and %[1]s-shm", path)
}

// creating keeps other handles of this process from opening a file before createFile has closed it.
var creating sync.Mutex

// createFile creates the file, for its user only, unless it exists. It never opens an existing file:
// closing any descriptor of a file drops the locks that SQLite holds on it in this process.
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

func dataSource(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // the path starts with a drive letter
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=rw"
}

// setUp sets up the connection and the file.
func (s *Store) setUp(ctx context.Context) error {
	s.logSize = logSize(s.file.path)
	var version int64
	err := s.retry(ctx, func() (err error) { // because another connection may be recovering the file
		// Check before any change, because the file may belong to another program.
		if version, err = s.checkMark(s.conn); err != nil {
			return err
		}
		row, err := s.conn.get("PRAGMA journal_mode = WAL")
		if err != nil {
			return err
		}
		if mode := text(row[0]); mode != "wal" {
			return fmt.Errorf("SQLite uses the journal mode %q instead of wal: the file system has no shared memory; put the file on another one", mode)
		}
		return s.conn.script(fmt.Sprintf(pragmas, s.logSize))
	})
	if err != nil {
		return err
	}
	tx := &callTx{Store: s, call: (*callTx).setUpFile}
	s.transact(ctx, tx)
	if version == 0 && tx.err == nil {
		s.checkpoint("PASSIVE") // so that the file has its tables even if the disk becomes full
	}
	return tx.err
}

// checkMark returns the version of the schema, or 0 if the file is new. It returns an error that
// matches store.ErrInvalid if the file belongs to another program or to a newer version. Such a file
// must not be changed.
func (s *Store) checkMark(c *conn) (version int64, err error) {
	row, err := c.get("SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version")
	if code := resultCode(err); code == sqlite3.SQLITE_NOTADB || code == sqlite3.SQLITE_CORRUPT {
		return 0, fmt.Errorf("%w: sqlite path %s: is not an SQLite database, or is damaged; use a new file, for locks only", store.ErrInvalid, s.file.path)
	}
	if err != nil {
		return 0, err
	}
	mark, version, tables := integer(row[0]), integer(row[1]), integer(row[2])
	switch {
	case mark != fileMark && (tables > 0 || mark != 0 || version != 0):
		err = fmt.Errorf("%w: sqlite path %s: is a database of another program; use a separate file", store.ErrInvalid, s.file.path)
	case version > schemaVersion:
		err = fmt.Errorf("%w: sqlite path %s: was created by a newer Holdfast (schema version %d, this one knows %d): update this program, or use another file",
			store.ErrInvalid, s.file.path, version, schemaVersion)
	}
	return version, err
}

// checkTables returns the error of a statement, or says that a newer version has changed the tables while
// the file is open: see schema.sql.
func (s *Store) checkTables(c *conn, err error) error {
	if err != nil && resultCode(err) == sqlite3.SQLITE_ERROR {
		_, other := s.checkMark(c)
		return cmp.Or(other, err)
	}
	return err
}

// setUpFile creates the tables of a new file, or adjusts the file to this boot.
func (tx *callTx) setUpFile() error {
	version, err := tx.checkMark(tx.conn)
	if err != nil {
		return err
	}
	if version == 0 {
		clock := tx.tokenClock()
		err = tx.conn.script(fmt.Sprintf("%s; PRAGMA application_id = %d; PRAGMA user_version = %d", schema, fileMark, schemaVersion))
		if err == nil {
			_, err = tx.conn.exec("INSERT INTO meta (one, clock, base, low, high, sweep, seen) VALUES (1, ?, ?, 0, ?, '', ?)",
				tx.clock.boot, clock, clock+tx.now/tokenUnit+tokensAhead, tx.now)
		}
		tx.base, tx.recorded = clock, tx.now
		return err
	}
	row, err := tx.conn.get("SELECT clock, base, high, sweep, seen FROM meta")
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
