package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration.
type settings struct {
	transfers int
	ttl       time.Duration // TTL in the parts in which an instance is suspended
}

// A scenario is one part of the demonstration, with new instances and new accounts.
type scenario struct {
	title   string
	mode    string // of the instances
	suspend bool   // suspend instance a in the middle of a transfer
	refused int    // how many transfers the fence refuses
	wrong   bool   // whether balances are wrong at the end
}

var scenarios = []scenario{
	{title: "no lock", mode: "without-lock", wrong: true},
	{title: "LockAll and fence"},
	{title: "LockAll, but no fence, and an instance is suspended in the middle of a transfer", mode: "without-fence", suspend: true, wrong: true},
	{title: "LockAll and fence, and an instance is suspended in the middle of a transfer", suspend: true, refused: 1},
}

// run plays all scenarios and returns one line about their results.
func (s *settings) run(stage *fleet.Stage) (proof string, err error) {
	const want = accounts * initialBalance
	results := make([]result, len(scenarios))
	for i, sc := range scenarios {
		r, err := s.play(stage, sc)
		if err != nil {
			return "", fmt.Errorf("%s: %w", sc.title, err)
		}
		fmt.Fprintf(stage.Out, "   => the sum was %d and is %d; accounts that differ from the ledger: %d of %d\n", want, r.sum, r.wrong, accounts)
		if wrong := r.sum != want || r.wrong > 0; wrong != sc.wrong || r.refused != sc.refused {
			return "", fmt.Errorf("%s: wrong balances: %v, want %v; transfers refused: %d, want %d", sc.title, wrong, sc.wrong, r.refused, sc.refused)
		}
		results[i] = r
	}
	return fmt.Sprintf("%d transfers, 3 instances: the sum is still %d (without the lock: %d); %d transfer of a suspended holder refused (without the fence: the sum is %d)",
		s.transfers, results[1].sum, results[0].sum, results[3].refused, results[2].sum), nil
}

// A result is what a scenario has left in the database, and what the instances have printed.
type result struct {
	sum     int // of all balances
	wrong   int // accounts whose balance does not match the ledger
	refused int // transfers
}

// play runs a scenario.
func (s *settings) play(stage *fleet.Stage, sc scenario) (r result, err error) {
	f := stage.Part(sc.title)
	defer f.Close()
	var rows []string
	for id := range accounts {
		rows = append(rows, fmt.Sprintf("(%d, %d)", id, initialBalance))
	}
	db, data, err := stage.Database(`
		CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0));
		CREATE TABLE ledger (source INTEGER NOT NULL, destination INTEGER NOT NULL, amount INTEGER NOT NULL);
		INSERT INTO accounts VALUES ` + strings.Join(rows, ", "))
	if err != nil {
		return r, err
	}
	defer db.Close()

	args := []string{"-data", data, "-mode", sc.mode}
	names := []string{"a", "b", "c"}
	if sc.suspend {
		names = names[:2]
		s.oneIsSuspended(f, append(args, "-ttl", s.ttl.String()))
	} else {
		s.everyoneTransfers(f, names, args)
	}
	for _, name := range names {
		closed := f.Await(name, "closed: ")
		f.Do(func() error {
			var done, noFunds, refused int
			_, err := fmt.Sscanf(closed, "transfers %d, without funds %d, refused %d", &done, &noFunds, &refused)
			r.refused += refused
			return err
		})
		f.Finish(name)
	}
	f.Do(func() error {
		return db.QueryRowContext(stage.Ctx, `
			SELECT sum(balance), sum(balance != ?
				+ (SELECT total(amount) FROM ledger WHERE destination = id)
				- (SELECT total(amount) FROM ledger WHERE source = id))
			FROM accounts`, initialBalance).Scan(&r.sum, &r.wrong)
	})
	return r, f.Err()
}

// everyoneTransfers lets three instances make random transfers at the same time.
func (s *settings) everyoneTransfers(f *fleet.Fleet, names, args []string) {
	for i, name := range names {
		n := (i+1)*s.transfers/len(names) - i*s.transfers/len(names)
		f.Start(name, append(slices.Clip(args), "-transfers", fmt.Sprint(n))...)
	}
	for _, name := range names {
		f.Await(name, "open")
	}
	for _, name := range names {
		f.Tell(name, "transfer")
	}
}

// oneIsSuspended lets a read the balances of accounts 1 and 2, suspends it, lets b transfer
// money from account 1 to account 3, and wakes a.
func (s *settings) oneIsSuspended(f *fleet.Fleet, args []string) {
	f.Start("a", append(slices.Clip(args), "-transfer", "1,2,50", "-pause")...)
	f.Start("b", append(slices.Clip(args), "-transfer", "1,3,200")...)
	f.Await("a", "open")
	f.Await("b", "open")
	f.Tell("a", "transfer")
	f.Await("a", "has read")
	f.Suspend("a")
	f.Tell("b", "transfer")
	f.Finish("b")
	f.Resume("a")
	f.Tell("a", "go on")
}
