package sqlstore

import (
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// tokenClock is the base that makes tokens follow the wall clock, in microseconds since
// 1970: so they grow even if the file is lost.
func (tx *sqliteTx) tokenClock() int64 { return (tx.clock.wall() - tx.now) / tokenUnit }

// reboot moves the file to the clock of this boot. All who held or waited have ended with
// the boot before. What was closed stays closed until its time by the wall clock, which is
// all that the two boots have in common.
func (tx *sqliteTx) reboot(was string, high int64) error {
	if boot := tx.clock.boot; was == boot || strings.HasPrefix(was, boot+" ") {
		return fmt.Errorf("%w: sqlite path %s: in use by processes of another time namespace, whose clock is a different one: give those of this one a file of their own",
			store.ErrInvalid, tx.file.path)
	}
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
	// Above all tokens of before, even if the wall clock was set back meanwhile.
	tx.base = max(tx.tokenClock(), high+1-now/tokenUnit)
	_, err := tx.conn.exec("UPDATE meta SET clock = ?, base = ?, low = 0, high = ?", tx.clock.name(), tx.base, tx.tokenAt(now)+tokensAhead)
	return err
}
