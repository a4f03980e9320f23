package sqlitestore

import (
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// A token is the time of its grant in microseconds. Usually nothing is written to keep tokens in
// order: the time is read while the file is locked, so it follows the order of grants, and there
// are two transactions between two grants of a name, which take longer than a microsecond. Only
// tokens ahead of the clock are recorded, in meta.low: blocks of several tokens, floors, and
// every token if the clock can be set back.

const (
	tokenUnit = int64(time.Microsecond)

	// tokensAhead is how far meta.high is ahead of the clock when it is raised. Raising it costs
	// one write per minute, and a reboot skips up to a minute of tokens.
	tokensAhead = int64(time.Minute) / tokenUnit
)

// tokenAt returns the token for a time.
func (s *Store) tokenAt(now int64) int64 { return s.base + now/tokenUnit }

// covers reports whether all later tokens are above floor, so that floor need not be recorded.
func (tx *callTx) covers(floor int64) bool {
	return floor == 0 || tx.clock.steady && floor < tx.tokenAt(tx.now)
}

func (e *entry) Reserve(n int, floor int64) (first int64, tokens int, err error) {
	tx := e.tx
	low, high, err := tx.tokens()
	if err != nil {
		return 0, 0, err
	}
	clock := tx.tokenAt(tx.now)
	first = max(clock, low+1, floor+1, tx.last+1)
	if first > store.MaxToken {
		return 0, 0, store.NoTokens(max(low, floor))
	}
	tokens = int(min(int64(rules.Block(n)), store.MaxToken-first+1))
	tx.last = first + int64(tokens) - 1
	ahead := tx.last > clock || !tx.clock.steady
	if ahead {
		low = tx.last
	}
	if ahead || tx.last > high {
		err = tx.note(low, high, tx.last)
	}
	return first, tokens, err
}

func (e *entry) Raise(floor int64) error {
	tx := e.tx
	if tx.covers(floor) {
		return nil
	}
	if floor >= store.MaxToken {
		return store.NoTokens(floor)
	}
	low, high, err := tx.tokens()
	if err != nil {
		return err
	}
	low = max(low, floor)
	return tx.note(low, high, low)
}

// tokens reads the bounds of tokens, and their base, which another handle may have raised.
func (tx *callTx) tokens() (low, high int64, err error) {
	row, err := tx.conn.get(sqlGetTokens)
	if err != nil {
		return 0, 0, err
	}
	if row == nil {
		return 0, 0, errDamaged
	}
	tx.base = integer(row[0])
	return integer(row[1]), integer(row[2]), nil
}

// note records that later tokens must be above low, and raises high if last, the highest token
// issued, is above it.
func (tx *callTx) note(low, high, last int64) error {
	if last > high {
		high = last + tokensAhead
	}
	_, err := tx.conn.exec(sqlPutTokens, low, high)
	return err
}
