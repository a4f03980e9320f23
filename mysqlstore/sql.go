package mysqlstore

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

// nowSQL is the server's clock in µs since 1970, in any time zone. Throughout a statement it is the time at
// which it began. That is safe for a statement that had to wait for a row, because it ends its own grant
// early and those of others late.
const nowSQL = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))"

// grantColumns are common to names and claims.
const grantColumns = "id, since, until, data"

// maxFast bounds the floors of single statements. Above it, a transaction checks that tokens are left.
const maxFast = store.MaxToken / 2

// session sets up the session of a connection, whatever the settings of the application's are.
var session = []string{
	// Without locks on gaps between rows, transactions on different names do not block each other.
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
	// All rows are read, and a commit does not begin another transaction.
	"SET SESSION sql_select_limit = DEFAULT, sql_big_selects = 1, completion_type = 0",
	// Bytes are not converted.
	"SET NAMES binary",
	fmt.Sprintf("SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES', innodb_lock_wait_timeout = %[1]d, lock_wait_timeout = %[1]d, wait_timeout = %[2]d",
		rowPatience, int(serverIdle.Seconds())),
}

// statements are the statements of one store, with the names of its tables.
type statements struct {
	meta                         string // reads what acquire depends on
	acquire, release             string // prepared: take names that are free and have no waiters, and release them
	read, lock                   string // read the rows of names, and lock them
	exist, unlocked              string // which names have rows, and which of those no other session has locked
	create                       string // creates the row of a name, unless it exists
	claims                       string // reads the claims of crowded names
	claimIDs, freeIDs            string // which claims names have, and which of those no other session has locked
	putNames, putClaim, delClaim string
	ring, stay                   string // tell waiters to ask again, and keep the places of those that were not told so
	renew, poll, list            string
	elect, sweep, remove         string
}

func newStatements(prefix string) statements {
	// A row is not free if its grant is not over, or if its tokens are not below the new token, which is the
	// new last token minus the parameter. In that case an overflow makes the statement fail (errOutOfRange), so
	// that the other columns need no condition. With one for each, a pair took 1.3 times as long, because
	// MariaDB resolves all expressions of a statement in each execution.
	const taken = "(special OR " + unrepeated + "(until > VALUES(since) OR {{names}}.last >= VALUES(last) - ?))"
	const selectNames = "SELECT {{now}}, (SELECT compatible FROM {{meta}} WHERE one = 1), name, special, last, " + grantColumns +
		" FROM {{names}} FORCE INDEX (PRIMARY)"
	st := statements{
		meta: "SELECT low, compatible FROM {{meta}} WHERE one = 1",
		acquire: "INSERT INTO {{names}} (name, id, since, until, last, data) VALUES %s" +
			" ON DUPLICATE KEY UPDATE last = VALUES(last) + 9223372036854775807 * " + taken + ", " + assignments(grantColumns),
		release:  "UPDATE {{names}} FORCE INDEX (PRIMARY) SET until = 0 WHERE name %s AND id %s AND until > {{now}} AND special = 0",
		read:     selectNames + " WHERE name IN (%s) ORDER BY name",
		list:     selectNames + " WHERE %s AND (special & 1 = 1 OR until > {{now}}) ORDER BY name LIMIT %d",
		exist:    "SELECT name FROM {{names}} FORCE INDEX (PRIMARY) WHERE name IN (%s)",
		unlocked: "SELECT name FROM {{names}} FORCE INDEX (PRIMARY) WHERE name IN (%s) ORDER BY name FOR UPDATE SKIP LOCKED",
		create:   "INSERT INTO {{names}} (name, last) %s ON DUPLICATE KEY UPDATE name = VALUES(name)",
		claims: "SELECT name, seq, rung, " + grantColumns +
			" FROM {{claims}} FORCE INDEX (PRIMARY) WHERE name IN (%s) ORDER BY name, seq",
		claimIDs: "SELECT name, seq, id FROM {{claims}} FORCE INDEX (PRIMARY) WHERE name IN (%s)",
		putNames: "INSERT INTO {{names}} (name, special, last, " + grantColumns + ") VALUES %s ON DUPLICATE KEY UPDATE " +
			assignments("special, last, "+grantColumns),
		putClaim: "INSERT INTO {{claims}} (name, seq, rung, " + grantColumns + ") VALUES %s ON DUPLICATE KEY UPDATE " +
			assignments("rung, since, until, data"),
		ring:     "UPDATE {{claims}} FORCE INDEX (PRIMARY) SET rung = 1 WHERE %s",
		stay:     "UPDATE {{claims}} FORCE INDEX (PRIMARY) SET until = {{now}} + %d WHERE rung = 0 AND until > {{now}} AND (%s)",
		delClaim: "DELETE c FROM {{claims}} c FORCE INDEX (PRIMARY) WHERE %s", // a scan would wait for rows of other names
		renew:    "UPDATE {{names}} FORCE INDEX (PRIMARY) SET until = {{now}} + %d WHERE name IN (%s) AND id IN (%s) AND LEFT(data, 4) = '%d 0 ' AND until > {{now}}",
		poll: "SELECT name, id, rung, (SELECT COUNT(*) FROM {{claims}} f WHERE f.name = c.name AND f.seq > 0 AND f.seq < c.seq)" +
			" FROM {{claims}} c WHERE %s",
		elect: "UPDATE {{meta}} SET swept = {{now}} WHERE one = 1 AND compatible <= %d" +
			" AND (swept <= {{now}} - %d OR swept > {{now}})",
		sweep:  "SELECT name, special & 1, until <= {{now}} - %d FROM {{names}} WHERE name > %s ORDER BY name LIMIT %d",
		remove: "DELETE n FROM {{names}} n FORCE INDEX (PRIMARY) WHERE name IN (%s) AND special & 1 = 0 AND until <= {{now}} - %d AND last <= LEAST(%d, {{now}} - %d)",
	}
	st.lock = st.read + " FOR UPDATE"
	st.freeIDs = st.claimIDs + " FOR UPDATE SKIP LOCKED"
	for _, s := range []*string{
		&st.meta, &st.acquire, &st.release, &st.read, &st.lock, &st.exist, &st.unlocked, &st.create, &st.claims, &st.claimIDs, &st.freeIDs, &st.putNames, &st.putClaim, &st.ring, &st.stay, &st.delClaim, &st.renew,
		&st.poll, &st.list, &st.elect, &st.sweep, &st.remove,
	} {
		*s = withTables(*s, prefix)
	}
	return st
}

// acquireRow is a row that acquire inserts. LAST_INSERT_ID replies with the time, which gives the tokens.
const acquireRow = "(?, ?, LAST_INSERT_ID({{now}}), since + ?, GREATEST(since, ?) + ?, ?)"

// unrepeated is the part of acquire that is false for a row that was repeated to fill the statement.
const unrepeated = "(id <> VALUES(id) OR since <> VALUES(since)) AND "

// acquireOf returns the statement that takes n names.
func (st *statements) acquireOf(n int) string {
	s := fmt.Sprintf(st.acquire, list(withTables(acquireRow, ""), n))
	if n == 1 {
		s = strings.Replace(s, unrepeated, "", 1)
	}
	return s
}

// releaseOf returns the statement that releases n names.
func (st *statements) releaseOf(n int) string {
	if n == 1 {
		return fmt.Sprintf(st.release, "= ?", "= ?")
	}
	in := "IN (" + list("?", n) + ")"
	return fmt.Sprintf(st.release, in, in)
}

func list(element string, n int) string {
	return strings.Join(slices.Repeat([]string{element}, n), ", ")
}

// assignments returns a = VALUES(a), … for columns.
func assignments(columns string) string {
	var list []string
	for column := range strings.SplitSeq(columns, ", ") {
		list = append(list, column+" = VALUES("+column+")")
	}
	return strings.Join(list, ", ")
}

// literal returns bytes in hexadecimal, which means the same in every SQL mode and character set.
func literal(s string) string {
	if s == "" {
		return "''"
	}
	return "x'" + hex.EncodeToString([]byte(s)) + "'"
}

func idLiteral(id store.ID) string { return "x'" + id.String() + "'" }

// literals returns strings in sorted order. All statements lock rows in this order.
func literals(names []string) string {
	names = slices.Sorted(slices.Values(names))
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = literal(name)
	}
	return strings.Join(quoted, ", ")
}
