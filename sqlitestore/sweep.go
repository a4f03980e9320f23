package sqlitestore

import (
	"database/sql/driver"
	"time"
)

// What expired is removed when somebody asks for its name. For names that nobody asks for
// again, Acquire looks at some more names now and then, and so does Open.
const (
	sweepNames = 100
	sweepEvery = 100 * time.Millisecond
	sweepPause = 10 * time.Second // before it starts again
	sweepOpen  = 1000
)

// sweep looks at some more names, if it is time to.
func (tx *transaction) sweep() error {
	pause := sweepEvery
	if tx.sweepTo == "" {
		pause = sweepPause
	}
	if !apart(tx.now, tx.swept, pause) {
		return nil
	}
	tx.swept = tx.now
	var err error
	tx.sweepTo, err = tx.sweepFrom(tx.sweepTo, sweepNames)
	return err
}

// sweepFrom removes what is over among the next names and returns the last of them, "" if
// there is none behind.
func (tx *transaction) sweepFrom(after string, limit int) (string, error) {
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
		e, err := tx.load(name)
		if err == nil {
			err = e.store()
		}
		if err != nil {
			return "", err
		}
	}
	if n < limit {
		return "", nil
	}
	return last, nil
}
