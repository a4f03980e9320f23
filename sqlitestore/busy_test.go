package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// lockFile takes the write lock of the file, as another process in the middle of a transaction
// would. It returns a function that releases the lock.
func lockFile(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	conn, err := db.Conn(context.Background())
	must(t, err)
	_, err = conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
	must(t, err)
	unlock = sync.OnceFunc(func() {
		conn.ExecContext(context.Background(), "ROLLBACK")
		conn.Close()
		db.Close()
	})
	t.Cleanup(unlock)
	return unlock
}

// calls returns all calls that write to the file.
func calls(s store.Store, req store.Request) map[string]func(ctx context.Context) error {
	all := suites.Calls(s, req)
	delete(all, "List")
	return all
}

func TestACallReturnsSoonAfterItsContextEnds(t *testing.T) {
	path, s := newFile(t)
	req := take(t, s, "order")
	unlock := lockFile(t, path)
	// The calls run concurrently. The first call waits for the file, and the others wait for the
	// first.
	var wg sync.WaitGroup
	for name, call := range calls(s, req) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want context.DeadlineExceeded", name, err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s returned after %v", name, took)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Acquire(ctx, request("other")); err == nil || !strings.Contains(err.Error(), "has the file locked") {
		t.Errorf("error %v, want one that says why", err)
	}
	if _, err := s.List(t.Context(), store.Query{}); err != nil {
		t.Errorf("List: %v, want to read while another writes", err)
	}
	if _, err := sqlitestore.Open(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v, want context.DeadlineExceeded", err)
	}
	unlock()
	for _, name := range []string{"Renew", "Acquire", "Release"} { // the grant was not changed
		if err := calls(s, req)[name](t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A call must not wait for another one whose context has not ended.
func TestACallReturnsAtItsDeadlineWhileAnEarlierOneWaits(t *testing.T) {
	path, s := newFile(t)
	unlock := lockFile(t, path)
	first := make(chan error)
	go func() {
		_, err := s.Acquire(context.Background(), request("first"))
		first <- err
	}()
	time.Sleep(20 * time.Millisecond) // so that the other call is the first
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	second := make(chan error)
	go func() {
		_, err := s.Acquire(ctx, request("second"))
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want context.DeadlineExceeded", err)
		}
	case <-time.After(patience):
		t.Fatal("a call does not end with its context")
	}
	unlock()
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	must(t, s.Close())
	wantRows(t, path, "names: first")
}

func TestCloseEndsCallsThatWaitForTheFile(t *testing.T) {
	path, s := newFile(t)
	req := request("order")
	lockFile(t, path)
	ended := make(chan error)
	all := calls(s, req)
	for _, call := range all {
		go func() { ended <- call(context.Background()) }()
	}
	time.Sleep(20 * time.Millisecond)
	s.Close()
	for range all {
		select {
		case err := <-ended:
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("error %v, want ErrClosed", err)
			}
		case <-time.After(patience):
			t.Fatal("a call does not end")
		}
	}
}

// A call that waited for the file must not use the time at which it was made, because grants
// may have expired since.
func TestARenewalThatWaitedForTheFileDoesNotReviveAnExpiredGrant(t *testing.T) {
	path, s := newFile(t)
	short := request("order")
	short.TTL = sqlitestore.MinTTL
	granted(t, s, short)
	unlock := lockFile(t, path)
	ended := make(chan store.Renewed)
	go func() {
		out, err := s.Renew(context.Background(), []store.Renewal{{Name: short.Name, ID: short.ID, Mode: short.Mode, TTL: time.Minute}})
		if err != nil {
			t.Error(err)
			out = []store.Renewed{{}}
		}
		ended <- out[0]
	}()
	time.Sleep(short.TTL + 50*time.Millisecond)
	unlock()
	if out := <-ended; out.Status != store.Gone {
		t.Errorf("status %d of a renewal that reached the file after the expiry: want Gone", out.Status)
	}
}

// Calls that arrive while the file is locked share a transaction. Each has its own outcome, and
// a failed call does not roll back the others.
func TestCallsThatShareATransactionHaveTheirOwnOutcomes(t *testing.T) {
	path := newPath(t)
	a, b := open(t, path), open(t, path)
	shared := request("shared")
	shared.Mode = store.Shared
	granted(t, a, shared)
	const n = 200 // together with the renewals more than fit into one batch
	held := make([]store.Request, n)
	for i := range held {
		held[i] = take(t, a, fmt.Sprintf("held:%d", i))
	}
	unlock := lockFile(t, path)
	var wg sync.WaitGroup
	var winners atomic.Int32
	for i := range n {
		wg.Go(func() {
			ctx := context.Background()
			switch i % 6 {
			case 0:
				req := request("new") // one of many requests for this name
				answer, err := a.Acquire(ctx, req)
				if err != nil {
					t.Errorf("Acquire: %v", err)
				}
				if answer.Granted() {
					winners.Add(1)
				}
			case 1:
				if err := a.Release(ctx, held[i].Name, held[i].ID, store.Keep{}); err != nil {
					t.Errorf("Release: %v", err)
				}
			case 2:
				if err := a.Release(ctx, held[i].Name, store.NewID(), store.Keep{}); !errors.Is(err, store.ErrNotHeld) {
					t.Errorf("Release of another identity: %v, want ErrNotHeld", err)
				}
			case 3:
				out, err := a.Renew(ctx, []store.Renewal{{Name: held[i].Name, ID: held[i].ID, Mode: store.Exclusive, TTL: time.Hour}})
				if err != nil || out[0].Status != store.Extended {
					t.Errorf("Renew: %v, error %v", out, err)
				}
			case 4:
				req := request("shared")
				req.Mode, req.Limit = store.Permits, 3
				if _, err := a.Acquire(ctx, req); !errors.Is(err, store.ErrInvalid) {
					t.Errorf("Acquire of permits: %v, want ErrInvalid", err)
				}
			case 5:
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				if err := a.Leave(ctx, held[i].Name, held[i].ID); !errors.Is(err, context.Canceled) {
					t.Errorf("Leave: %v, want context.Canceled", err)
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // so that they are queued
	unlock()
	wg.Wait()
	if n := winners.Load(); n != 1 {
		t.Errorf("%d were granted the same name", n)
	}
	for i, req := range held {
		answer, err := b.Acquire(t.Context(), request(req.Name))
		if err != nil || answer.Granted() != (i%6 == 1) {
			t.Errorf("%s: granted %v, error %v", req.Name, answer.Granted(), err)
		}
	}
}
