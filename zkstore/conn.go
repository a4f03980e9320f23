package zkstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// slots bounds how many calls are under way. Each needs a goroutine, because the library's
// calls know no context: one that nobody waits for any more ends with its connection.
const slots = 512

// do runs work beside the caller, who returns when ctx ends. What the work has begun by then
// is finished before anything else is done under the same identity: see hold.
func do[T any](ctx context.Context, s *Store, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := s.usable(ctx); err != nil {
		return none, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.done:
		return none, errClosed
	}
	results := make(chan result, 1)
	sent := time.Now()
	go func() {
		value, err := work()
		<-s.slots
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return r.value, s.explain(r.err)
	case <-ctx.Done():
		if time.Since(sent) > s.silence() {
			s.dialer.drop() // another server may answer
		}
		return none, ctx.Err()
	case <-s.done:
		return none, errClosed
	}
}

// hold makes calls under one identity wait for each other. Free must follow.
func (s *Store) hold(ctx context.Context, k key) (free func(), err error) {
	for {
		s.mu.Lock()
		other := s.busy[k]
		if other == nil {
			free = s.occupy(k)
			s.mu.Unlock()
			return free, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.done:
			return nil, errClosed
		}
	}
}

// occupy makes an identity busy. It needs the mutex.
func (s *Store) occupy(k key) (free func()) {
	mine := make(chan struct{})
	s.busy[k] = mine
	return func() {
		s.mu.Lock()
		delete(s.busy, k)
		s.mu.Unlock()
		close(mine)
	}
}

// explain makes an error of the library one that says what to do.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed.Load() && !errors.Is(err, store.ErrNotHeld) && !errors.Is(err, store.ErrInvalid):
		return errClosed
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("%w: zookeeper store: %w at %s: check user and password of the URL, and the ACL of that node", store.ErrInvalid, err, s.root)
	case errors.Is(err, zk.ErrNoServer):
		return fmt.Errorf("zookeeper store: %w: see whether a majority of the servers is up and can be reached", err)
	}
	return err
}

// A dialer connects the library, through links.
type dialer struct {
	store *Store

	mu     sync.Mutex
	conn   net.Conn
	shut   bool
	dialed net.Dialer
}

var errShut = errors.New("the store was closed")

func (d *dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := d.dialed.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		conn.Close()
		return nil, errShut
	}
	d.conn = conn
	return newLink(conn, d.store), nil
}

// sever ends the connection without a word, for good. The session lives on until its timeout.
func (d *dialer) sever() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	if d.conn != nil {
		d.conn.Close()
	}
}

// drop ends the connection; the library makes another.
func (d *dialer) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.conn.Close()
	}
}

// hosts tells the library which server to try next. Unlike the library's own it asks for
// addresses at every attempt, and goes to the next server at once when it loses one: a pause
// comes only when all were tried in vain.
type hosts struct {
	mu     sync.Mutex
	list   []string
	next   int
	failed int // since a connection
}

func (h *hosts) Init(list []string) error {
	h.list = append(h.list, list...)
	rand.Shuffle(len(h.list), func(i, j int) { h.list[i], h.list[j] = h.list[j], h.list[i] })
	return nil
}

func (h *hosts) Len() int { return len(h.list) }

func (h *hosts) Next() (server string, pause bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.list[h.next%len(h.list)]
	h.next++
	h.failed++
	return server, h.failed > 1 && (h.failed-1)%len(h.list) == 0
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = 0
}
