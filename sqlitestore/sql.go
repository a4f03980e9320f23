package sqlitestore

// The columns of a grant in names and holders, and those of a waiter.
const (
	grantColumns  = "id, mode, weight, lim, token, tokens, since, until, state, wall, owner, meta"
	waiterColumns = "seq, id, mode, weight, lim, wake"
)

// Statements use only ?, because the driver binds numbered parameters slowly.
const (
	// These three statements serve a name with one holder and no waiters, with tokens from the
	// clock. A handle whose base is outdated must not take a name: its token would be too low.
	sqlTake = `INSERT OR IGNORE INTO names (name, id, mode, weight, lim, token, tokens, since, until, owner, meta)
		SELECT ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ? FROM meta WHERE base = ? AND ? BETWEEN low + 1 AND high`
	sqlDrop   = `DELETE FROM names WHERE name = ? AND id = ? AND state = 0 AND until > ? AND crowd = 0`
	sqlExtend = `UPDATE names SET until = ? WHERE name = ? AND id = ? AND mode = ? AND state = 0 AND until > ?`

	sqlGetName    = `SELECT crowd, ` + grantColumns + ` FROM names WHERE name = ?`
	sqlPutName    = `INSERT OR REPLACE INTO names (name, crowd, ` + grantColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlClearName  = `INSERT OR REPLACE INTO names (name, crowd) VALUES (?, 1)`
	sqlDeleteName = `DELETE FROM names WHERE name = ?`

	sqlExpireHolders = `DELETE FROM holders WHERE name = ? AND until <= ?`
	sqlAnyHolder     = `SELECT mode, lim, until FROM holders WHERE name = ? ORDER BY until LIMIT 1`
	sqlSumHolders    = `SELECT sum(weight) FROM holders WHERE name = ?`
	sqlKeptHolder    = `SELECT 1 FROM holders WHERE name = ? AND state <> 0 LIMIT 1`
	sqlGetHolder     = `SELECT ` + grantColumns + ` FROM holders WHERE name = ? AND id = ?`
	sqlOldestHolders = `SELECT ` + grantColumns + ` FROM holders WHERE name = ? AND +until > ? ORDER BY since LIMIT ?` // + selects the index by since
	sqlExtendHolder  = `UPDATE holders SET until = ? WHERE name = ? AND id = ? AND mode = ? AND state = 0 AND +until > ?`
	sqlPutHolder     = `INSERT OR REPLACE INTO holders (name, ` + grantColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlDeleteHolder  = `DELETE FROM holders WHERE name = ? AND id = ?`

	sqlExpireWaiters = `DELETE FROM waiters WHERE name = ? AND until <= ?`
	sqlCountWaiters  = `SELECT count(*) FROM waiters WHERE name = ?`
	sqlGetWaiter     = `SELECT ` + waiterColumns + ` FROM waiters WHERE name = ? AND id = ?`
	sqlFirstWaiter   = `SELECT ` + waiterColumns + ` FROM waiters WHERE name = ? ORDER BY seq LIMIT 1`
	sqlAllWaiters    = `SELECT ` + waiterColumns + `, joined, owner, meta FROM waiters WHERE name = ? AND until > ? ORDER BY seq`
	sqlOtherUse      = `SELECT ` + waiterColumns + ` FROM waiters WHERE name = ? AND mode <> 1 ORDER BY seq LIMIT 1`
	sqlInFront       = `SELECT count(*), min(until) FROM waiters WHERE name = ? AND seq < ?`
	sqlDeleteWaiter  = `DELETE FROM waiters WHERE name = ? AND seq = ?`
	sqlKeepWaiter    = `UPDATE waiters SET until = ?, wake = ?, owner = ?, meta = ? WHERE name = ? AND seq = ?`
	sqlAddWaiter     = `INSERT INTO waiters (name, seq, id, mode, weight, lim, joined, until, wake, owner, meta)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlLastWaiter = `SELECT max(seq) FROM waiters WHERE name = ?`

	sqlGetTokens = `SELECT base, low, high FROM meta`
	sqlPutLow    = `UPDATE meta SET low = ?`
	sqlPutTokens = `UPDATE meta SET low = ?, high = ?`
	sqlPutSeen   = `UPDATE meta SET seen = ?`

	sqlSweep = `SELECT name, crowd, until FROM names WHERE name > ? ORDER BY name LIMIT ?`

	sqlListOne = `SELECT name, crowd, ` + grantColumns + ` FROM names WHERE name = ?`
	sqlList    = `SELECT name, crowd, ` + grantColumns + ` FROM names WHERE name > ? AND name >= ? AND name < ? ORDER BY name LIMIT ?`
)
