// Balance moves money between ten accounts, in three instances of a bank at the same time. The sum of all
// balances never changes, even when an instance is suspended in the middle of a transfer for longer than
// its leases last. Copy bank.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence"
)

var example = fleet.Example{Name: "balance", Instance: instance, Play: play}

func main() { example.Main() }

var transfers = 3000

const accounts, initialBalance = 10, 1000

// instance makes one transfer, or many random ones, eight at a time.
func instance(i *fleet.Instance) error {
	b := &bank{locks: i.Locks, db: i.DB}
	if i.Is("pause") {
		askForApproval = func(context.Context) error {
			i.Stop("when it has read the balances")
			return nil
		}
	}
	method := b.transfer
	if i.Is("unlocked") {
		method = func(ctx context.Context, t transfer) error { return b.move(ctx, t, nil) }
	}
	if i.Is("unfenced") {
		method = func(ctx context.Context, t transfer) error {
			set, err := b.locks.LockAll(ctx, []string{account(t.from), account(t.to)})
			if err != nil {
				return err
			}
			defer set.Unlock(ctx)
			return b.move(set.Context(ctx), t, nil)
		}
	}
	move := func(t transfer) error {
		err := method(i.Ctx, t)
		if errors.Is(err, fence.ErrStale) {
			fmt.Println("refused:", err)
		} else if !errors.Is(err, errNoFunds) {
			return err
		}
		return nil
	}
	var one transfer
	if n, _ := fmt.Sscanf(i.Args[1], "%d,%d,%d", &one.from, &one.to, &one.amount); n == 3 {
		return move(one)
	}
	n, err := strconv.Atoi(i.Args[1])
	errs := []error{err, 7: nil}
	var all sync.WaitGroup
	for g := range errs {
		all.Go(func() {
			for range (n + g) / len(errs) {
				from := rand.IntN(accounts)
				to := (from + 1 + rand.IntN(accounts-1)) % accounts
				errs[g] = errors.Join(errs[g], move(transfer{from, to, 1 + rand.IntN(100)}))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// play compares the sum of all balances in four parts.
func play(s *fleet.Stage) (proof string) {
	unlocked, wrong := makeTransfers(s, "no lock", "unlocked", false)
	s.Want(wrong > 0, "all balances are right: the transfers did not compete")
	sum, wrong := makeTransfers(s, "LockAll and fence", "fenced", false)
	s.Want(sum == accounts*initialBalance && wrong == 0, "%d balances are wrong", wrong)
	const suspended = ", and an instance is suspended in the middle of a transfer"
	unfenced, wrong := makeTransfers(s, "LockAll, but no fence"+suspended, "unfenced", true)
	s.Want(wrong > 0, "all balances are right without a fence")
	_, wrong = makeTransfers(s, "LockAll and fence"+suspended, "fenced", true)
	s.Want(wrong == 0, "%d balances are wrong", wrong)
	return fmt.Sprintf("%d transfers, 3 instances: the sum is still %d (without the lock: %d); 1 transfer of a suspended holder refused (without the fence: the sum is %d)",
		transfers, sum, unlocked, unfenced)
}

// makeTransfers lets three instances make all transfers, or two make one each while one of them is suspended.
// It returns the sum of all balances, and how many do not match the ledger.
func makeTransfers(s *fleet.Stage, title, mode string, suspendOne bool) (sum, wrong int) {
	s.Part(title, `
		CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0));
		CREATE TABLE ledger (source INTEGER NOT NULL, destination INTEGER NOT NULL, amount INTEGER NOT NULL);
		`+strings.Repeat(fmt.Sprintf("INSERT INTO accounts SELECT count(*), %d FROM accounts;", initialBalance), accounts))
	if suspendOne {
		// Instance a reads the balances of accounts 1 and 2, and is suspended. Instance b transfers money
		// from account 1 to account 3, and a wakes up.
		s.TTL = fleet.Short
		s.Ready("a", mode, "1,2,50", "pause")
		s.Ready("b", mode, "1,3,200")
		s.Tell("start", "a")
		s.Suspend("a", "when it has read the balances")
		s.Tell("start", "b")
		s.AwaitEnd("b")
		s.Resume("a")
		if mode == "fenced" {
			s.Await("refused", "a")
		}
		s.AwaitEnd("a")
	} else {
		for _, name := range []string{"a", "b", "c"} {
			s.Ready(name, mode, strconv.Itoa(transfers/3))
		}
		s.Tell("start", "a", "b", "c")
		s.AwaitEnd("a", "b", "c")
	}
	sum = s.Int("SELECT sum(balance) FROM accounts")
	wrong = s.Int(`SELECT count(*) FROM accounts WHERE balance != ?
		+ (SELECT total(amount) FROM ledger WHERE destination = id) - (SELECT total(amount) FROM ledger WHERE source = id)`, initialBalance)
	fmt.Fprintf(s.Out, "   => the sum was %d and is %d; accounts that differ from the ledger: %d of %d\n", accounts*initialBalance, sum, wrong, accounts)
	return sum, wrong
}
