package sqlitestore

import (
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite appends commits to a log, the -wal file, and a checkpoint copies them into the file. The checkpoints
// that SQLite makes do not wait for readers, and the log can start again from its beginning only when nobody
// reads it. With several busy processes there is always a reader, so the store makes its own.
const (
	// maxLog is the length above which the log is copied. A checkpoint calls fsync, so this is four
	// times the default of SQLite. On a small file system it is a part of the free space: one of
	// logShare parts, but at least minLog.
	maxLog   = 16 << 20
	minLog   = 256 << 10
	logShare = 8

	frameSize = 4096 + 24 // bytes of a page in the log

	// logEvery is how many commits there are between two looks at the length of the log, which
	// take a microsecond or two. They add about 100 KiB.
	logEvery = 16

	// readerPause is for how many milliseconds a checkpoint waits for others, while no connection
	// can write. Transactions take less than that; a long listing may take more.
	readerPause = "10"

	// slowPause is for logEvery commits while the log is far too long. It is shorter than any TTL.
	slowPause = 20 * time.Millisecond
)

// logSize returns the length above which the log of a file is copied into it.
func logSize(path string) int64 {
	free, err := freeSpace(path)
	if err != nil {
		return maxLog
	}
	return min(max(free/logShare, minLog), maxLog)
}

// boundLog makes the log start again from its beginning if it is too long, which also cuts it back to
// logSize. The caller has the turn and no open transaction.
func (s *Store) boundLog() {
	if s.commits++; s.commits%logEvery != 0 {
		return
	}
	row, err := s.conn.get("PRAGMA wal_checkpoint(NOOP)") // only returns the length
	if err != nil {
		return
	}
	length := integer(row[1]) * frameSize
	if length <= s.logSize {
		return
	}
	s.checkpoint("PASSIVE") // most of the work, during which others can write
	if !s.checkpoint("RESTART") && length > 2*s.logSize {
		time.Sleep(slowPause) // another process is at it, and the log must not grow faster than it is copied
	}
}

// checkpoint copies the log into the file. It reports whether all was copied and, unless the mode
// is PASSIVE, the next commit writes to the beginning of the log. The caller has the turn and no
// open transaction.
func (s *Store) checkpoint(mode string) bool {
	if _, err := s.conn.get("PRAGMA busy_timeout = " + readerPause); err != nil {
		return false
	}
	defer s.conn.get("PRAGMA busy_timeout = 0") // Store.retry waits instead
	row, err := s.conn.get("PRAGMA wal_checkpoint(" + mode + ")")
	return err == nil && integer(row[0]) == 0
}

// full reports whether a write failed because a file could not grow. If that is due to a quota,
// SQLite reports an I/O error.
func full(err error) bool {
	return resultCode(err) == sqlite3.SQLITE_FULL || extendedCode(err) == sqlite3.SQLITE_IOERR_WRITE
}
