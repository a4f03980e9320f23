package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/mysqlstore"
)

// usesPool reports whether a client of a hunt shares a pool of connections with an application.
func (w *worker) usesPool() bool {
	return w.number == 1 && strings.HasPrefix(w.order.URL, "mysql://")
}

// openOnPool opens a client on the pool of an application, which changes the database of its
// connections all the time. The other database has the tables of locks, too. Then ends the application.
func openOnPool(address string, opts ...holdfast.Option) (c *holdfast.Client, then func(), err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("mysql", fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path))
	if err != nil {
		return nil, nil, err
	}
	s, err := mysqlstore.New(db)
	if err == nil {
		c, err = holdfast.New(s, opts...)
	}
	if err != nil {
		if s != nil {
			s.Close()
		}
		db.Close()
		if !errors.Is(err, holdfast.ErrInvalid) { // Open does the same with the errors of servers
			err = fmt.Errorf("%w: %w", holdfast.ErrUnavailable, err)
		}
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause(ctx, 20*time.Millisecond) {
			conn, err := db.Conn(ctx)
			if err == nil {
				conn.ExecContext(ctx, "USE "+servers.MariaDBDatabase) // fails during faults
				conn.Close()
			}
		}
	}()
	return c, func() {
		cancel()
		<-ended
		db.Close()
	}, nil
}
