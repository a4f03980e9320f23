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

// A shop sells one product. Several instances of it run at the same time, with one database. It needs a lock
// because it charges a card at another company between reading the stock and booking the order.
type shop struct {
	locks *holdfast.Client
	db    *sql.DB
}

// product is the name of the lock, and of the resource that the fence protects.
const product = "stock:42"

// buy sells one item. It returns errSoldOut if none is left, and an error that matches fence.ErrStale if this
// process was suspended and another one has continued in the meantime.
func (s *shop) buy(ctx context.Context, buyer int) error {
	return s.locks.Do(ctx, product, func(ctx context.Context) error {
		token := holdfast.TokenFrom(ctx)
		// From here on, no earlier holder can change the stock that is read next.
		if err := sqlfence.SQLite.Raise(ctx, s.db, product, token); err != nil {
			return err
		}
		return s.sell(ctx, buyer, token)
	})
}

// sell reads the stock, charges the card and books the order. Without a token it is right for one buyer at a time only.
func (s *shop) sell(ctx context.Context, buyer int, token int64) error {
	var left int
	if err := s.db.QueryRowContext(ctx, "SELECT left FROM stock").Scan(&left); err != nil {
		return err
	}
	if left == 0 {
		return errSoldOut
	}
	if err := chargeCard(ctx, buyer); err != nil {
		return err
	}
	// The card is charged, so book the order even if the buyer has disconnected. The fence
	// decides whether this process may still book it, not the context.
	if err := s.book(context.WithoutCancel(ctx), buyer, left-1, token); err != nil {
		refundCard(buyer)
		return err
	}
	return nil
}

// book writes the new stock and the order, in one transaction that first checks the token.
func (s *shop) book(ctx context.Context, buyer, left int, token int64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if token != 0 {
		if err := sqlfence.SQLite.Check(ctx, tx, product, token); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET left = ?", left); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer) VALUES (?)", buyer); err != nil {
		return err
	}
	return tx.Commit()
}

// chargeCard stands for a call to another company, which takes its time. The demonstration adds a pause.
var chargeCard = func(_ context.Context, buyer int) error {
	time.Sleep(time.Millisecond)
	return nil
}

// refundCard stands for another such call. In a real shop it is idempotent and repeated until it succeeds.
func refundCard(int) {}
