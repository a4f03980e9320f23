package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// settings are the numbers of the demonstration.
type settings struct {
	store     string // URL; empty for a temporary SQLite file
	transfers int
	ttl       time.Duration // TTL in the scenarios in which an instance is suspended
}

// demo defines the flags of the demonstration, and returns the function that runs it on a store.
func demo() fleet.Demo {
	var s settings
	flag.IntVar(&s.transfers, "transfers", 3000, "how many transfers to make")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long a suspended holder keeps its locks")
	return func(ctx context.Context, store string) (proof string, err error) {
		s.store = store
		return run(ctx, os.Stdout, s)
	}
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
func run(ctx context.Context, out io.Writer, s settings) (proof string, err error) {
	folder, err := os.MkdirTemp("", "balance-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if s.store == "" {
		s.store = "sqlite:" + filepath.Join(folder, "locks.db")
	}
	const want = accounts * initialBalance
	results := make([]result, len(scenarios))
	for i, sc := range scenarios {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, sc.title)
		r, err := sc.play(ctx, out, s, filepath.Join(folder, fmt.Sprintf("bank%d.db", i)))
		if err != nil {
			return "", fmt.Errorf("%s: %w", sc.title, err)
		}
		fmt.Fprintf(out, "   => the sum was %d and is %d; accounts that differ from the ledger: %d of %d\n", want, r.sum, r.wrong, accounts)
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
func (sc scenario) play(ctx context.Context, out io.Writer, s settings, data string) (r result, err error) {
	db, err := openDatabase(data)
	if err != nil {
		return r, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `
		CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0));
		CREATE TABLE ledger (source INTEGER NOT NULL, destination INTEGER NOT NULL, amount INTEGER NOT NULL)`); err != nil {
		return r, err
	}
	for id := range accounts {
		if _, err := db.ExecContext(ctx, "INSERT INTO accounts VALUES (?, ?)", id, initialBalance); err != nil {
			return r, err
		}
	}
	if err := sqlfence.SQLite.CreateTable(ctx, db); err != nil {
		return r, err
	}

	f := fleet.New(ctx, out, "HOLDFAST_STORE="+s.store)
	defer f.Close()
	args := []string{"-data", data, "-mode", sc.mode}
	play := sc.everyoneTransfers
	if sc.suspend {
		args = append(args, "-ttl", s.ttl.String())
		play = sc.oneIsSuspended
	}
	names, err := play(out, f, s, args)
	if err != nil {
		return r, err
	}
	for _, name := range names {
		closed, err := f.Await(name, "closed: ")
		if err != nil {
			return r, err
		}
		var done, noFunds, refused int
		if _, err := fmt.Sscanf(closed, "transfers %d, without funds %d, refused %d", &done, &noFunds, &refused); err != nil {
			return r, err
		}
		r.refused += refused
		if err := f.Finish(name); err != nil {
			return r, err
		}
	}
	err = db.QueryRowContext(ctx, `
		SELECT sum(balance), sum(balance != ?
			+ (SELECT total(amount) FROM ledger WHERE destination = id)
			- (SELECT total(amount) FROM ledger WHERE source = id))
		FROM accounts`, initialBalance).Scan(&r.sum, &r.wrong)
	return r, err
}

// everyoneTransfers lets three instances make random transfers at the same time.
func (sc scenario) everyoneTransfers(_ io.Writer, f *fleet.Fleet, s settings, args []string) ([]string, error) {
	names := []string{"a", "b", "c"}
	for i, name := range names {
		n := (i+1)*s.transfers/len(names) - i*s.transfers/len(names)
		if err := f.Start(name, append(slices.Clip(args), "-transfers", fmt.Sprint(n))...); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if _, err := f.Await(name, "open"); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if err := f.Tell(name, "transfer"); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// oneIsSuspended lets a read the balances of accounts 1 and 2, suspends it, lets b transfer
// money from account 1 to account 3, and wakes a.
func (sc scenario) oneIsSuspended(out io.Writer, f *fleet.Fleet, _ settings, args []string) ([]string, error) {
	if err := f.Start("a", append(slices.Clip(args), "-transfer", "1,2,50", "-pause")...); err != nil {
		return nil, err
	}
	if err := f.Start("b", append(slices.Clip(args), "-transfer", "1,3,200")...); err != nil {
		return nil, err
	}
	for _, name := range []string{"a", "b"} {
		if _, err := f.Await(name, "open"); err != nil {
			return nil, err
		}
	}
	if err := f.Tell("a", "transfer"); err != nil {
		return nil, err
	}
	if _, err := f.Await("a", "has read"); err != nil {
		return nil, err
	}
	if err := f.Suspend("a"); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "   a  suspended (SIGSTOP)")
	if err := f.Tell("b", "transfer"); err != nil {
		return nil, err
	}
	if err := f.Finish("b"); err != nil {
		return nil, err
	}
	if err := errors.Join(f.Resume("a"), f.Tell("a", "go on")); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "   a  wakes up (SIGCONT)")
	return []string{"a", "b"}, nil
}
