package pgstore

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectTimeout bounds one attempt to connect, and each hook of the application. An attempt continues
	// after the end of its call, and takes up a connection of the pool, by default for two minutes.
	connectTimeout = 5 * time.Second

	// goodbye bounds how long the pool waits for the server to cancel the statement of a call whose caller
	// gave up, and to end the connection. That takes up a connection of the pool, by default for 15 seconds.
	goodbye = time.Second

	// pgxCancel is less than the time that pgx has to cancel a statement, which is 15 seconds. A dial that has
	// longer than that, and longer than a connection has, is one to cancel a statement.
	pgxCancel = 14 * time.Second
)

// bound limits what the pool and the listener wait for while they open and close connections.
func bound(own *pgxpool.Config) {
	own.ConnConfig.ConnectTimeout = cmp.Or(own.ConnConfig.ConnectTimeout, connectTimeout)
	limit := own.ConnConfig.ConnectTimeout
	dial, beforeClose := own.ConnConfig.DialFunc, own.BeforeClose
	own.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		limit := limit
		end, _ := ctx.Deadline()
		cancels := time.Until(end) > max(limit, pgxCancel)
		if cancels {
			limit = goodbye
		}
		dialCtx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		conn, err := dial(dialCtx, network, addr)
		if err == nil && cancels {
			conn.SetDeadline(time.Now().Add(goodbye))
		}
		return conn, err
	}
	own.BeforeConnect, own.AfterConnect = within(own.BeforeConnect), within(own.AfterConnect)
	own.ConnConfig.AfterConnect = within(own.ConnConfig.AfterConnect)
	own.BeforeClose = func(conn *pgx.Conn) {
		if beforeClose != nil {
			beforeClose(conn)
		}
		time.AfterFunc(goodbye, func() { conn.PgConn().Conn().Close() })
	}
}

// within bounds a hook of the application. The pool and the listener wait for it without a limit.
func within[T any](hook func(context.Context, T) error) func(context.Context, T) error {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context, of T) error {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return hook(ctx, of)
	}
}
