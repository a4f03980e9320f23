package sqlitestore

import (
	"database/sql/driver"
	"time"
)

// A clock is shared by all users of a file.
type clock struct {
	boot   string       // the boot ID; a different one may mean that the clock was restarted
	steady bool         // the clock cannot be set back, so its readings have the order of tokens
	now    func() int64 // nanoseconds
	wall   func() int64 // nanoseconds since 1970
}

// tokenClock returns the base with which tokens are microseconds since 1970 on the wall clock, so
// that they grow even if the file is lost.
func (tx *callTx) tokenClock() int64 { return (tx.clock.wall() - tx.now) / tokenUnit }

// seenEvery is how often a handle that writes also records its reading of the clock in meta.seen.
const seenEvery = time.Second

// recordTime raises meta.seen to the time of the transaction, at most once per seenEvery. So
// no grant in the file ends later than its TTL plus seenEvery after meta.seen.
func (s *Store) recordTime(now int64) error {
	if s.recorded == 0 || !elapsed(now, s.recorded, seenEvery) {
		return nil // the table may not exist yet, or the last record is too recent
	}
	_, err := s.conn.exec(sqlPutSeen, now)
	s.recorded = now
	return err
}

// otherBoot is called when the file was last opened under another boot ID, which alone does not prove a
// reboot: see the package documentation. If the clock is behind meta.seen, the machine was restarted, and
// all holders and waiters are gone. Otherwise they keep their remaining time. That costs little: the
// clock has passed meta.seen, so each of them ends within its TTL plus seenEvery.
//
// Kept records may last for days, and have no holder that could be alive. They end by the wall
// clock, which is the only clock that two boots share.
func (tx *callTx) otherBoot(seen, high int64) error {
	if tx.now < seen {
		return tx.reboot(high)
	}
	wall := tx.clock.wall()
	const kept = "since = since - max(0, until - (? + (wall - ?))), until = min(until, ? + (wall - ?)) WHERE state <> 0"
	for _, table := range []string{"names", "holders"} {
		if _, err := tx.conn.exec("UPDATE "+table+" SET "+kept, tx.now, wall, tx.now, wall); err != nil {
			return err
		}
	}
	// After a reboot, the clock may repeat readings of the previous boot. After a power cut, the
	// newest commits may be missing as well. In that case only the wall clock is above the tokens
	// that were granted in them. Handles with the old base notice the new one: see sqlTake.
	low := tx.tokenAt(seen + int64(seenEvery))
	tx.base = max(tx.base, tx.tokenClock())
	_, err := tx.conn.exec("UPDATE meta SET clock = ?, base = ?, low = max(low, min(high, ?))", tx.clock.boot, tx.base, low)
	return err
}

// reboot adjusts the file to the clock of this boot, and removes the holders and waiters of the
// previous one.
func (tx *callTx) reboot(high int64) error {
	now, wall := tx.now, tx.clock.wall()
	const kept = "since = ? - (? - (wall - (until - since))), until = ? + (wall - ?) WHERE state <> 0"
	times := []driver.Value{now, wall, now, wall}
	for _, step := range []struct {
		query string
		args  []driver.Value
	}{
		{"DELETE FROM waiters", nil},
		{"DELETE FROM holders WHERE state = 0", nil},
		{"DELETE FROM names WHERE state = 0 AND crowd = 0", nil},
		{"UPDATE names SET id = NULL, until = 0 WHERE state = 0", nil},
		{"UPDATE names SET " + kept, times},
		{"UPDATE holders SET " + kept, times},
	} {
		if _, err := tx.conn.exec(step.query, step.args...); err != nil {
			return err
		}
	}
	// The base is above all earlier tokens, even if the wall clock was set back.
	tx.base = max(tx.tokenClock(), high+1-now/tokenUnit)
	_, err := tx.conn.exec("UPDATE meta SET clock = ?, base = ?, low = 0, high = ?, seen = ?", tx.clock.boot, tx.base, tx.tokenAt(now)+tokensAhead, now)
	return err
}
