package sqlitestore

import (
	"database/sql/driver"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
)

// An expired grant is removed by the next call on its name. Names that are never used again are
// removed step by step by Acquire on other names, and by Open.
const (
	sweepNames = 100
	sweepEvery = 100 * time.Millisecond
	sweepPause = 10 * time.Second // between two sweeps of all names
	sweepOpen  = 1000
)

// sweep removes expired grants and waiters of the next names, at most once per sweepEvery.
func (tx *callTx) sweep() (err error) {
	pause := sweepEvery
	if tx.sweepTo == "" {
		pause = sweepPause
	}
	if !elapsed(tx.now, tx.swept, pause) {
		return nil
	}
	tx.swept = tx.now
	tx.sweepTo, err = tx.sweepFrom(tx.sweepTo, sweepNames)
	return err
}

// sweepFrom does so with the next limit names. It returns the last of them, or "" at the end.
func (tx *callTx) sweepFrom(after string, limit int) (string, error) {
	var due []string
	last, n := "", 0
	err := tx.conn.each(func(row []driver.Value) error {
		last = text(row[0])
		n++
		if integer(row[1]) != 0 || integer(row[2]) <= tx.now {
			due = append(due, last)
		}
		return nil
	}, sqlSweep, after, int64(limit))
	if err != nil {
		return "", err
	}
	for _, name := range due {
		if err := tx.onName(name, func(*entry, *rules.Call) error { return nil }); err != nil {
			return "", err
		}
	}
	if n < limit {
		return "", nil
	}
	return last, nil
}
