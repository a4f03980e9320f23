package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// errSoldOut is returned when no item is left.
var errSoldOut = errors.New("sold out")

// A shop sells one product. Several instances of it run at the same time, with one database.
//
// A purchase is more than one database statement. Between reading the stock and booking the
// order, the shop charges the buyer's card at another company. That is why it needs a lock.
type shop struct {
	locks *holdfast.Client
	db    *sql.DB

	// charge is chargeCard, unless the demonstration adds a pause to it.
	charge func(ctx context.Context, buyer int) error
}

func newShop(locks *holdfast.Client, db *sql.DB) *shop {
	return &shop{locks: locks, db: db, charge: chargeCard}
}

// product is the name of the lock, and of the resource that the fence protects.
const product = "stock:42"

// buy sells one item. It returns errSoldOut if none is left, and an error that matches
// fence.ErrStale if this process was suspended and another one has continued in the meantime.
func (s *shop) buy(ctx context.Context, buyer int) error {
	return s.locks.Do(ctx, product, func(ctx context.Context) error {
		token := holdfast.TokenFrom(ctx)
		// From here on, no earlier holder can change the stock that is read next.
		if err := sqlfence.SQLite.Raise(ctx, s.db, product, token); err != nil {
			return err
		}
		left, err := s.left(ctx)
		if err != nil {
			return err
		}
		if left == 0 {
			return errSoldOut
		}
		if err := s.charge(ctx, buyer); err != nil {
			return err
		}
		// The card is charged, so book the order even if the buyer has disconnected. The fence
		// decides whether this process may still book it, not the context.
		if err := s.book(context.WithoutCancel(ctx), token, buyer, left-1); err != nil {
			return errors.Join(err, refundCard(context.WithoutCancel(ctx), buyer))
		}
		return nil
	})
}

func (s *shop) left(ctx context.Context) (left int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT left FROM stock").Scan(&left)
	return left, err
}

// book writes the stock and the order in one transaction, which first checks the token.
func (s *shop) book(ctx context.Context, token int64, buyer, left int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := sqlfence.SQLite.Check(ctx, tx, product, token); err != nil {
		return err
	}
	if err := writeOrder(ctx, tx, buyer, left); err != nil {
		return err
	}
	return tx.Commit()
}

func writeOrder(ctx context.Context, tx *sql.Tx, buyer, left int) error {
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET left = ?", left); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer) VALUES (?)", buyer)
	return err
}

// chargeCard stands for a call to another company.
func chargeCard(ctx context.Context, _ int) error {
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refundCard stands for another such call. In a real shop it is idempotent and repeated until it
// succeeds.
func refundCard(context.Context, int) error { return nil }

// buyWithoutLock makes the same purchase without a lock. It is correct only for one buyer at a
// time.
func (s *shop) buyWithoutLock(ctx context.Context, buyer int) error {
	left, err := s.left(ctx)
	if err != nil {
		return err
	}
	if left == 0 {
		return errSoldOut
	}
	if err := s.charge(ctx, buyer); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := writeOrder(ctx, tx, buyer, left-1); err != nil {
		return err
	}
	return tx.Commit()
}
