package sqlitestore

import (
	"database/sql/driver"
	"time"
)

// tokenClock is the base that makes tokens follow the wall clock, in microseconds since
// 1970: so they grow even if the file is lost.
func (tx *transaction) tokenClock() int64 { return (tx.clock.wall() - tx.now) / tokenUnit }

// seenEvery is how often a handle that writes records its reading of the clock in
// meta.seen.
const seenEvery = time.Second

// recordTime raises meta.seen to the time of the transaction, if that is due. So no grant
// in the file ends later than its TTL and seenEvery after meta.seen.
func (s *Store) recordTime(now int64) error {
	if s.recorded == 0 || !apart(now, s.recorded, seenEvery) {
		return nil // there may be no table yet, or it is too soon
	}
	_, err := s.conn.exec(sqlPutSeen, now)
	s.recorded = now
	return err
}

// otherBoot is called when the file was last opened under another boot id. That alone does
// not show that the machine was restarted: LXC and systemd-nspawn give each container a
// boot id of its own, over one kernel and one clock, and then the grants are alive. But the
// clock never goes back while the kernel runs. If it is behind what the file has seen, all
// holders and waiters have ended with the kernel that they ran on.
//
// Otherwise both are possible, and grants and waiters keep their time. That costs little:
// the clock has passed meta.seen, so each of them is over within its TTL and seenEvery.
//
// Closures last for days and have no holder that could be alive. They end by the wall
// clock, which is all that two boots have in common.
func (tx *transaction) otherBoot(seen, high int64) error {
	if tx.now < seen {
		return tx.reboot(high)
	}
	wall := tx.clock.wall()
	const closure = "since = since - max(0, until - (? + (wall - ?))), until = min(until, ? + (wall - ?)) WHERE state <> 0"
	for _, table := range []string{"names", "holders"} {
		if _, err := tx.conn.exec("UPDATE "+table+" SET "+closure, tx.now, wall, tx.now, wall); err != nil {
			return err
		}
	}
	// If it was a reboot, the clock may repeat the last readings of the boot before. If it
	// was a power cut, the file may also lack the newest commits. Then only the wall clock
	// is ahead of the tokens that were granted in them.
	_, err := tx.conn.exec("UPDATE meta SET clock = ?, low = max(low, min(high, ?), ?)",
		tx.clock.boot, tx.tokenAt(seen+int64(seenEvery)), wall/tokenUnit)
	return err
}

// reboot moves the file to the clock of this boot. All holders and waiters have ended with
// the boot before.
func (tx *transaction) reboot(high int64) error {
	now, wall := tx.now, tx.clock.wall()
	const closure = "since = ? - (? - (wall - (until - since))), until = ? + (wall - ?) WHERE state <> 0"
	times := []driver.Value{now, wall, now, wall}
	for _, step := range []struct {
		query string
		args  []driver.Value
	}{
		{"DELETE FROM waiters", nil},
		{"DELETE FROM holders WHERE state = 0", nil},
		{"DELETE FROM names WHERE state = 0 AND crowd = 0", nil},
		{"UPDATE names SET id = NULL, until = 0 WHERE state = 0", nil},
		{"UPDATE names SET " + closure, times},
		{"UPDATE holders SET " + closure, times},
	} {
		if _, err := tx.conn.exec(step.query, step.args...); err != nil {
			return err
		}
	}
	// Above all earlier tokens, even if the wall clock was set back meanwhile.
	tx.base = max(tx.tokenClock(), high+1-now/tokenUnit)
	_, err := tx.conn.exec("UPDATE meta SET clock = ?, base = ?, low = 0, high = ?, seen = ?", tx.clock.boot, tx.base, tx.tokenAt(now)+tokensAhead, now)
	return err
}
