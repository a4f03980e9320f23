package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// errNoFunds is returned when an account has less money than the transfer needs.
var errNoFunds = errors.New("not enough money")

// A bank transfers money between accounts. Several instances of it run at the same time, with one database.
// A transfer reads two balances, asks another service whether the transfer is allowed, and writes two
// balances. No other transfer may touch the two accounts in between.
type bank struct {
	locks *holdfast.Client
	db    *sql.DB
}

// A transfer moves money from one account to another.
type transfer struct{ from, to, amount int }

// account returns the name of the lock of an account, and of the resource that the fence protects.
func account(id int) string { return fmt.Sprintf("account:%d", id) }

// transfer moves money. It returns errNoFunds if there is not enough, and an error that matches fence.ErrStale
// if this process was suspended and another one has used one of the accounts in the meantime.
func (b *bank) transfer(ctx context.Context, t transfer) error {
	// LockAll takes the locks in the order of their names, so that two transfers between the same accounts, in
	// opposite directions, do not wait for each other forever.
	set, err := b.locks.LockAll(ctx, []string{account(t.from), account(t.to)})
	if err != nil {
		return err
	}
	// An error of Unlock says that a lock was lost before. The fence has already accepted or
	// refused the transfer, so there is nothing left to do.
	defer set.Unlock(ctx)
	ctx = set.Context(ctx) // ends with the locks

	// From here on, no earlier holder can change the balances that are read next.
	for _, lease := range set.Leases() {
		if err := sqlfence.SQLite.Raise(ctx, b.db, lease.Name(), lease.Token()); err != nil {
			return err
		}
	}
	return b.move(ctx, t, set.Leases())
}

// move reads two balances and writes them. The leases are those of both accounts.
func (b *bank) move(ctx context.Context, t transfer, leases []*holdfast.Lease) error {
	var from, to int
	const query = "SELECT (SELECT balance FROM accounts WHERE id = ?), (SELECT balance FROM accounts WHERE id = ?)"
	if err := b.db.QueryRowContext(ctx, query, t.from, t.to).Scan(&from, &to); err != nil {
		return err
	}
	if from < t.amount {
		return errNoFunds
	}
	if err := askForApproval(ctx); err != nil {
		return err
	}
	return b.write(ctx, t, from-t.amount, to+t.amount, leases)
}

// write sets both balances and writes the ledger, in one transaction that first checks both tokens.
func (b *bank) write(ctx context.Context, t transfer, from, to int, leases []*holdfast.Lease) error {
	// The fence decides whether this process may still write. The context does not: if the
	// process is suspended right here, the context is cancelled too late.
	ctx = context.WithoutCancel(ctx)
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, lease := range leases {
		if err := sqlfence.SQLite.Check(ctx, tx, lease.Name(), lease.Token()); err != nil {
			return err
		}
	}
	const update = "UPDATE accounts SET balance = ? WHERE id = ?"
	if _, err := tx.ExecContext(ctx, update, from, t.from); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, update, to, t.to); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?, ?, ?)", t.from, t.to, t.amount); err != nil {
		return err
	}
	return tx.Commit()
}

// askForApproval stands for a call to another service, which takes its time. The demonstration adds a pause.
var askForApproval = func(context.Context) error {
	time.Sleep(time.Millisecond)
	return nil
}
