package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// remember is how long a registration is remembered: longer than any client or queue repeats a request.
const remember = 24 * time.Hour

// A service registers customers by phone number. The same request may reach several instances of it.
type service struct {
	locks *holdfast.Client
	db    *sql.DB
}

// register creates the user of a phone number, unless the user exists already, and returns the
// user's ID. All requests with the same number get the same answer.
func (s *service) register(ctx context.Context, phone string) (int64, error) {
	err := s.locks.Once(ctx, "register:"+phone, remember, func(ctx context.Context) error {
		return createUser(ctx, s.db, phone)
	})
	if err != nil && !errors.Is(err, holdfast.ErrDone) {
		return 0, err
	}
	return s.userID(ctx, phone) // Once remembers only that the work was done; the table has the result
}

// createUser is what must happen only once. A crash after the INSERT, before Once has recorded
// the success, can still make Once run it a second time. The unique index makes the second INSERT
// do nothing, so keep it. (The demonstration adds a crash, and shows what happens without the index.)
var createUser = func(ctx context.Context, db *sql.DB, phone string) error {
	sendWelcome(phone)
	_, err := db.ExecContext(ctx, "INSERT INTO users (phone) VALUES (?) ON CONFLICT DO NOTHING", phone)
	return err
}

// sendWelcome stands for a call to another company. No transaction of the database covers it.
func sendWelcome(string) { time.Sleep(20 * time.Millisecond) }

func (s *service) userID(ctx context.Context, phone string) (id int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT id FROM users WHERE phone = ? ORDER BY id LIMIT 1", phone).Scan(&id)
	return id, err
}

// registerWithoutLock does what many programs do. Two concurrent requests both see no user, and both create one.
func (s *service) registerWithoutLock(ctx context.Context, phone string) (int64, error) {
	id, err := s.userID(ctx, phone)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	if err := createUser(ctx, s.db, phone); err != nil {
		return 0, err
	}
	return s.userID(ctx, phone)
}

// handler serves POST /register?phone=NUMBER, and replies with the ID of the user.
func handler(register func(ctx context.Context, phone string) (int64, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		phone := r.FormValue("phone")
		if phone == "" {
			http.Error(w, "the parameter phone is missing", http.StatusBadRequest)
			return
		}
		id, err := register(r.Context(), phone)
		switch {
		case err == nil:
			fmt.Fprintln(w, id)
		case errors.Is(err, holdfast.ErrHeld), errors.Is(err, holdfast.ErrLost), errors.Is(err, holdfast.ErrUnavailable):
			// It is safe to repeat the request: the registration may be in progress or may have succeeded.
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}
