package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// Rows returns the rows of a file, including expired ones. Unlike Open it removes nothing.
func Rows(path string) ([]string, error) {
	conn, err := dial(dataSource(path))
	if err != nil {
		return nil, err
	}
	defer conn.close()
	var rows []string
	err = conn.each(func(row []driver.Value) error {
		rows = append(rows, text(row[0]))
		return nil
	}, "SELECT 'names: '||name FROM names UNION ALL SELECT 'holders: '||name FROM holders "+
		"UNION ALL SELECT 'waiters: '||name FROM waiters")
	return rows, err
}

// Statements returns statements that create a file with the same contents, a line each.
func Statements(path string) ([]string, error) {
	conn, err := dial(dataSource(path))
	if err != nil {
		return nil, err
	}
	defer conn.close()
	var lines []string
	add := func(row []driver.Value) error {
		lines = append(lines, strings.Join(strings.Fields(comment.ReplaceAllString(text(row[0]), "")), " "))
		return nil
	}
	err = conn.each(add, "SELECT format('PRAGMA application_id = %d', application_id) FROM pragma_application_id "+
		"UNION ALL SELECT format('PRAGMA user_version = %d', user_version) FROM pragma_user_version UNION ALL SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
	for _, table := range []string{"meta", "names", "holders", "waiters"} {
		columns := ""
		if err == nil {
			err = conn.each(func(row []driver.Value) error { columns = text(row[0]); return nil },
				"SELECT group_concat(format('quote(%s)', name), '||'', ''||') FROM pragma_table_info(?)", table)
		}
		if err == nil {
			err = conn.each(add, "SELECT 'INSERT INTO "+table+" VALUES ('||"+columns+"||')' FROM "+table)
		}
	}
	return lines, err
}

var comment = regexp.MustCompile(`--.*`)

// MinTTL is the shortest TTL.
const MinTTL = minTTL

// Script runs statements on a file without a store.
func Script(path, text string) error {
	conn, err := dial(dataSource(path))
	if err != nil {
		return err
	}
	return errors.Join(conn.script(text), conn.close())
}

// A Clock is a clock that a test sets.
type Clock struct {
	Boot      string
	Steady    bool
	Now, Wall func() int64
}

// OpenAt opens a file with that clock.
func OpenAt(ctx context.Context, path string, c Clock) (*Store, error) {
	return openWith(ctx, path, clock{boot: c.Boot, steady: c.Steady, now: c.Now, wall: c.Wall})
}

// SetHeartbeat sets how long a waiter that stopped asking keeps its place.
func SetHeartbeat(s *Store, d time.Duration) { s.heartbeat, s.pushes.waits.Keep = d, 2*d }

// Deafen makes a handle unable to listen for pushes.
func Deafen(s *Store) {
	s.pushes.open = func() (net.PacketConn, string, error) { return nil, "", errors.New("deaf") }
}

// Loopback makes a handle listen on a loopback port, as on systems other than Linux.
func Loopback(s *Store) { s.pushes.open = listenLoopback }

// Waits returns the number of waiting identities of a handle, and whether it listens.
func Waits(s *Store) (n int, listens bool) {
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	s.pushes.waits.Lock()
	defer s.pushes.waits.Unlock()
	return len(s.pushes.waits.All), s.pushes.conn != nil
}

// Intact returns an error if SQLite finds the file damaged, or if a name with rows in holders or
// waiters has no row in names that says so.
func Intact(path string) error {
	conn, err := dial(dataSource(path))
	if err != nil {
		return err
	}
	defer conn.close()
	row, err := conn.get("PRAGMA integrity_check")
	if err != nil || text(row[0]) != "ok" {
		return fmt.Errorf("integrity check: %v: %w", row, err)
	}
	for _, table := range []string{"holders", "waiters"} {
		row, err := conn.get("SELECT count(*) FROM " + table + " WHERE name NOT IN (SELECT name FROM names WHERE crowd = 1)")
		if err != nil || integer(row[0]) != 0 {
			return fmt.Errorf("%d %s of names that do not say so, %w", integer(row[0]), table, err)
		}
	}
	return nil
}

// Waiting reports whether an identity is waiting through this handle, and whether a wake-up reached it since its
// last refusal.
func Waiting(s *Store, name string, id store.ID) (known, woken bool) {
	s.pushes.waits.Lock()
	defer s.pushes.waits.Unlock()
	w := s.pushes.waits.All[wake.Key{Name: name, ID: id}]
	return w != nil, w != nil && w.Sent()
}

// Steps returns how many instructions of SQLite's virtual machine the statements of a handle have
// run. The driver does not tell, so this reads its fields.
func Steps(s *Store) (n int64) {
	status := reflect.ValueOf(sqlite3.Xsqlite3_stmt_status)
	for _, p := range s.conn.stmts {
		stmt := reflect.ValueOf(p.stmt).Elem()
		tls := reflect.NewAt(status.Type().In(0).Elem(), stmt.FieldByName("c").Elem().FieldByName("tls").UnsafePointer())
		handle := reflect.ValueOf(uintptr(stmt.FieldByName("pstmt").Uint()))
		n += status.Call([]reflect.Value{tls, handle, reflect.ValueOf(int32(sqlite3.SQLITE_STMTSTATUS_VM_STEP)), reflect.ValueOf(int32(0))})[0].Int()
	}
	return n
}
