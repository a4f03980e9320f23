package sqlfence

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast/store"
)

// A PgxRow is a pgx.Row.
type PgxRow interface {
	Scan(dest ...any) error
}

// A PgxQuerier is a pgx.Tx of github.com/jackc/pgx. The type parameter, which the compiler infers, stands for
// pgx.Row, so that this package need not require pgx.
type PgxQuerier[R PgxRow] interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
}

// CheckPgx is [Dialect.Check] for a pgx.Tx. The dialect is that of [PostgreSQL]:
//
//	var fences = sqlfence.PostgreSQL("public")
//	…
//	tx, err := pool.Begin(ctx)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback(ctx)
//	if err := sqlfence.CheckPgx(ctx, fences, tx, "account:42", holdfast.TokenFrom(ctx)); err != nil {
//		return err // errors.Is(err, fence.ErrStale): a newer holder has written
//	}
//	… write with tx …
//	return tx.Commit(ctx)
//
// With a *pgxpool.Pool or a *pgx.Conn outside of a transaction in place of tx, CheckPgx does what
// [Dialect.Raise] does. To create the table, execute [Dialect.Schema].
func CheckPgx[R PgxRow](ctx context.Context, d Dialect, tx PgxQuerier[R], resource string, token int64) error {
	if err := d.valid(resource, token); err != nil {
		return err
	}
	if d.name != postgreSQL {
		return fmt.Errorf("holdfast: %w: CheckPgx with the dialect of %s; use PostgreSQL", store.ErrInvalid, d.name)
	}
	var highest int64
	err := tx.QueryRow(ctx, d.check, resource, token).Scan(&highest)
	return verdict(resource, token, highest, err)
}
