package sqlitestore

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A token is the time of its grant in microseconds, and as a rule nothing is written to
// keep tokens in order: the time is read while the file is locked, so it is in the order of
// grants, and between two grants of a name lie two transactions, which take longer than a
// microsecond. Only what is ahead of the clock is noted, in meta.low: blocks of several
// tokens, floors, and every token if the clock can be set back.
//
// Microseconds since 1970 stay below 2^53 until the year 2255.

const (
	tokenUnit = int64(time.Microsecond)

	// maxBlock bounds a block of tokens, so that no caller uses up what others need.
	maxBlock = 4096

	// tokensAhead is how far meta.high is ahead of the clock when it is raised: one write
	// in a minute, and a minute of tokens lost in a reboot.
	tokensAhead = int64(time.Minute) / tokenUnit
)

// tokenAt is the token that belongs to a time.
func (s *Store) tokenAt(now int64) int64 { return s.base + now/tokenUnit }

// covers reports whether all later tokens will be above floor anyway.
func (tx *transaction) covers(floor int64) bool {
	return floor == 0 || tx.clock.steady && floor < tx.tokenAt(tx.now)
}

// reserve issues n tokens in a row above floor, or fewer, but at least one.
func (tx *transaction) reserve(n int, floor int64) (first int64, tokens int, err error) {
	low, high, err := tx.tokens()
	if err != nil {
		return 0, 0, err
	}
	n = min(max(n, 1), maxBlock)
	clock := tx.tokenAt(tx.now)
	first = max(clock, low+1, floor+1, tx.last+1)
	if first > store.MaxToken {
		return 0, 0, tokensOver(max(low, floor))
	}
	tokens = int(min(int64(n), store.MaxToken-first+1))
	tx.last = first + int64(tokens) - 1
	if tx.last <= high && tx.last <= clock && tx.clock.steady {
		return first, tokens, nil // nothing to note
	}
	if tx.last > clock || !tx.clock.steady {
		low = tx.last
	}
	return first, tokens, tx.note(low, high, tx.last)
}

// raise makes all later tokens greater than floor.
func (tx *transaction) raise(floor int64) error {
	if tx.covers(floor) {
		return nil
	}
	if floor >= store.MaxToken {
		return tokensOver(floor)
	}
	low, high, err := tx.tokens()
	if err != nil {
		return err
	}
	low = max(low, floor)
	return tx.note(low, high, low)
}

func (tx *transaction) tokens() (low, high int64, err error) {
	row, err := tx.conn.get(sqlGetTokens)
	if err != nil {
		return 0, 0, err
	}
	if row == nil {
		return 0, 0, errDamaged
	}
	return integer(row[0]), integer(row[1]), nil
}

// note writes what tokens must be above from now on. Last is the highest that may be out.
func (tx *transaction) note(low, high, last int64) error {
	if last > high {
		high = last + tokensAhead
	}
	_, err := tx.conn.exec(sqlPutTokens, low, high)
	return err
}

func tokensOver(floor int64) error {
	return fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; find out where so high a floor comes from", store.ErrInvalid, floor)
}
