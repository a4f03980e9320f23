package sqlitestore_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// Other names wait while a call has the file locked. So what a call costs must not grow with the
// number of holders of its name. A request for permits is the exception: it sums them up.
func TestTheCostOfACallDoesNotGrowWithTheHolders(t *testing.T) {
	const few, many, renewals = 50, 500, 20
	for _, mode := range []store.Mode{store.Shared, store.Permits} {
		t.Run(mode.String(), func(t *testing.T) {
			s := open(t, newPath(t))
			steps := func(call func()) int64 {
				before := sqlitestore.Steps(s)
				call()
				return sqlitestore.Steps(s) - before
			}
			var grants []store.Renewal
			add := func() store.Request {
				req := request("crowd")
				req.TTL = time.Hour // SQLite is slow with the race detector
				if req.Mode = mode; mode == store.Permits {
					req.Limit = 2 * many
				}
				granted(t, s, req)
				return req
			}
			costsWith := func(holders int) map[string]int64 {
				for len(grants) < holders {
					grants = append(grants, renewal(add()))
				}
				var req store.Request
				costs := map[string]int64{"Acquire": steps(func() { req = add() })}
				costs["Release"] = steps(func() { release(t, s, req) })
				renew := func(grants []store.Renewal) int64 {
					return steps(func() { extended(t, s, grants...) })
				}
				costs["Renew"] = renew(grants[:renewals])
				withToken := grants[0]
				withToken.Tokens = 1
				costs["Renew with a token"] = renew([]store.Renewal{withToken})
				if mode == store.Permits {
					delete(costs, "Acquire")
				}
				return costs
			}
			small, large := costsWith(few), costsWith(many)
			t.Logf("%d holders: %v; %d holders: %v", few, small, many, large)
			const slack = 100 // for what is done from time to time, such as recording the time
			for call, n := range large {
				if n > small[call]+slack {
					t.Errorf("%s: %d steps of SQLite with %d holders and %d with %d, want as many", call, small[call], few, n, many)
				}
			}
			// Renewals are the most frequent calls. They need one statement or two, and not the
			// state of the name.
			if each := large["Renew"] / renewals; each > 130 {
				t.Errorf("%d steps of SQLite for a renewal, want 130 at most", each)
			}
		})
	}
}

// A mode that this program does not know, which another program has written, excludes everybody.
func TestAHolderInAnUnknownModeExcludesEverybody(t *testing.T) {
	path, s := newFile(t)
	var readers []store.Request
	for range 3 { // the first one is not in the table of further holders
		reader := request("unknown")
		reader.Mode = store.Shared
		granted(t, s, reader)
		readers = append(readers, reader)
	}
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	_, err = db.Exec("UPDATE holders SET mode = 0 WHERE id = ?", readers[1].ID[:])
	must(t, err)
	release(t, s, readers[0])
	refused(t, s, request("unknown"))
}
