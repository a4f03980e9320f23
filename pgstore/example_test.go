package pgstore_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/pgstore"
)

// The store has the configuration of the pool of the application, and connections of its own.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	s, err := pgstore.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	locks, err := holdfast.New(s)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Do(ctx, "nightly-report", func(ctx context.Context) error {
		return nil // work that takes longer than a transaction should
	})
	if err != nil {
		log.Fatal(err)
	}
}

// LockTx protects data that is written in the same transaction.
func ExampleLockTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if err := pgstore.LockTx(ctx, tx, "account:42"); err != nil {
		log.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 42"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
}

// A transaction of pgx checks the token of the lock under which it writes.
func Example_fence() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/app")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	fences := sqlfence.PostgreSQL("public")
	if _, err := pool.Exec(ctx, fences.Schema()); err != nil { // or in a migration
		log.Fatal(err)
	}
	locks, err := holdfast.Open(ctx, "postgres://app@db.example.com/app")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Do(ctx, "account:42", func(ctx context.Context) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if err := sqlfence.CheckPgx(ctx, fences, tx, "account:42", holdfast.TokenFrom(ctx)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 10 WHERE id = 42"); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
}
