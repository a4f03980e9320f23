package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/store"
)

// LockTx locks a name for the rest of the caller's transaction, and waits until it is free. It is the
// strongest lock for data in the same database, because it ends exactly with the transaction. It needs
// no TTL, no token and no schema. It does not work for anything outside of that database.
//
//	tx, err := pool.Begin(ctx)
//	…
//	defer tx.Rollback(ctx)
//	if err := pgstore.LockTx(ctx, tx, "account:42"); err != nil {
//		return err
//	}
//	… read and write with tx …
//	return tx.Commit(ctx)
//
// LockTx excludes other calls of LockTx and TryLockTx with the same name in the same database, but not the
// leases of a Client. Locking a name again in one transaction succeeds. Lock several names in sorted order:
// otherwise two transactions can deadlock, which the server ends with an error after a second. If tx is a
// savepoint (Begin of a pgx.Tx), its rollback releases the names that were locked in it.
//
// LockTx returns an error that matches holdfast.ErrInvalid for a malformed name. After any other error,
// such as one of lock_timeout or of ctx, the transaction must be rolled back, which releases its locks. A
// transaction that is not read committed does not see changes that are committed after its first
// statement: make LockTx the first.
func LockTx(ctx context.Context, tx pgx.Tx, name string) error {
	if err := store.CheckName(name); err != nil {
		return fmt.Errorf("holdfast: %w", err)
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", pgx.QueryExecModeExec, TxKey(name)); err != nil {
		return fmt.Errorf("holdfast: lock %q in a transaction: %w", name, err)
	}
	return nil
}

// TryLockTx is like [LockTx] but does not wait. It reports whether it has locked the name.
func TryLockTx(ctx context.Context, tx pgx.Tx, name string) (locked bool, err error) {
	if err := store.CheckName(name); err != nil {
		return false, fmt.Errorf("holdfast: %w", err)
	}
	err = tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", pgx.QueryExecModeExec, TxKey(name)).Scan(&locked)
	if err != nil {
		return false, fmt.Errorf("holdfast: lock %q in a transaction: %w", name, err)
	}
	return locked, nil
}

// TxKey returns the key of the advisory lock of a name, for programs that use another driver:
//
//	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", pgstore.TxKey("account:42"))
func TxKey(name string) int64 {
	sum := sha256.Sum256([]byte("holdfast:" + name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}
