package goredis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// While fewInFlight batches are in flight, a further one is sent only batchPause after the
	// last one, so that concurrent commands are batched. There are never more than mostInFlight
	// batches in flight, and never more than that many connections.
	fewInFlight  = 2
	mostInFlight = 16
	batchPause   = 100 * time.Microsecond

	// maxBatch bounds how many requests are sent as one batch.
	maxBatch = 128

	// primaryCheck is the interval at which the store checks that the Sentinels still name the
	// same primary.
	primaryCheck = 2 * time.Second

	// failoverAddr is the address of every client that redis.NewFailoverClient returns.
	failoverAddr = "FailoverClient"
)

var errClosed = errors.New("the store is closed")

// A server is one Redis server, or the primary that Sentinels name, with the connections to it.
//
// Commands of one lock are sent in the order in which they were given, because a clean-up must
// not overtake the request that it undoes. A request whose lock has commands in flight waits for
// their replies, or for the end of their connection. Requests of different locks may overtake
// each other.
//
// After a failure all connections are replaced, because others may be dead as well. By the time
// the server has answered the handshake of a new connection, it has read everything that an older
// connection had delivered, so the order is kept across connections.
type server struct {
	opts  *redis.Options
	dials chan struct{}
	hub   hub

	mu       sync.Mutex
	closed   bool
	queue    []*request
	busy     map[string]int // locks with commands in flight
	inFlight map[*link]struct{}
	idle     []*link
	epoch    int       // number of failures; links of an earlier epoch are not used again
	sent     time.Time // when the last batch was sent
	pausing  bool      // send is about to be called
	checked  time.Time // when the primary was checked
	wg       sync.WaitGroup
}

// A request is a group of commands that are sent together.
type request struct {
	locks []string // keys of locks that the commands may change
	cmds  []redis.Cmder
	extra time.Duration // time for the reply in addition to answerTimeout

	// then, if set, is called when there are replies. It returns further commands, which are sent
	// on the same connection. Such a request is not in a batch with others.
	then func() []redis.Cmder

	done    chan struct{}
	ended   bool
	link    *link // once it is sent
	sent    time.Time
	overdue bool // there was no reply by the caller's deadline
}

func newServer(opts *redis.Options) *server {
	s := &server{
		opts: opts, dials: make(chan struct{}, maxDials), checked: time.Now(),
		busy: make(map[string]int), inFlight: make(map[*link]struct{}),
	}
	s.hub.server = s
	return s
}

// do sends a request and waits for the replies, which are then in its commands. If ctx ends
// first, it returns an error, and the commands must not be read.
func (s *server) do(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.done = make(chan struct{})
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.queue = append(s.queue, r)
	s.send()
	s.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.ended:
		return nil
	case r.link == nil:
		s.queue = slices.DeleteFunc(s.queue, func(q *request) bool { return q == r })
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(r.sent) >= suspectAfter:
		r.overdue = true
		if r.link.proven { // otherwise the link is still connecting, which may take longer
			s.discard(r.link)
		}
	}
	return ctx.Err()
}

// send sends batches from the queue as far as the limits allow. The caller holds the mutex.
func (s *server) send() {
	for len(s.queue) > 0 && len(s.inFlight) < mostInFlight && !s.closed {
		if len(s.inFlight) >= fewInFlight && time.Since(s.sent) < batchPause {
			s.sendLater()
			return
		}
		batch := s.take()
		if len(batch) == 0 {
			return
		}
		l := s.link()
		s.inFlight[l] = struct{}{}
		s.sent = time.Now()
		for _, r := range batch {
			r.link, r.sent = l, s.sent
			for _, lock := range r.locks {
				s.busy[lock]++
			}
		}
		l.batches <- batch
		s.checkPrimary(l)
	}
}

// sendLater calls send after a pause. If a reply arrives earlier, send is called earlier. The
// caller holds the mutex.
func (s *server) sendLater() {
	if s.pausing {
		return
	}
	s.pausing = true
	time.AfterFunc(batchPause, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pausing = false
		s.send()
	})
}

// take removes the requests of the next batch from the queue. The caller holds the mutex.
func (s *server) take() (batch []*request) {
	var blocked map[string]bool // locks of requests that stay queued, which later requests must not overtake
	isBlocked := func(lock string) bool { return s.busy[lock] > 0 || blocked[lock] }
	alone := false
	s.queue = slices.DeleteFunc(s.queue, func(r *request) bool {
		if alone || len(batch) == maxBatch || r.then != nil && len(batch) > 0 || slices.ContainsFunc(r.locks, isBlocked) {
			for _, lock := range r.locks {
				if blocked == nil {
					blocked = make(map[string]bool)
				}
				blocked[lock] = true
			}
			return false
		}
		alone = r.then != nil
		batch = append(batch, r)
		return true
	})
	return batch
}

// link returns a connection to use. The caller holds the mutex.
func (s *server) link() *link {
	for len(s.idle) > 0 {
		last := len(s.idle) - 1
		l := s.idle[last]
		s.idle = s.idle[:last]
		if l.epoch == s.epoch {
			return l
		}
		l.retire()
	}
	l := s.newLink(false)
	l.batches = make(chan []*request, 1)
	s.wg.Go(func() { s.serve(l) })
	return l
}

// serve sends the batches of a link until it is retired or fails. A goroutine that lives as long
// as the link is cheaper than one for each batch, whose stack would have to grow every time.
func (s *server) serve(l *link) {
	defer l.close()
	overdue := time.AfterFunc(time.Hour, l.kill)
	defer overdue.Stop()
	for batch := range l.batches {
		if !s.exchange(l, batch, overdue) {
			return
		}
	}
}

// exchange sends a batch and reads the replies. It reports whether the link is kept. If the timer
// fires, it kills the link.
func (s *server) exchange(l *link, batch []*request, overdue *time.Timer) (kept bool) {
	limit := answerTimeout
	var cmds []redis.Cmder
	for _, r := range batch {
		limit = max(limit, answerTimeout+r.extra)
		cmds = append(cmds, r.cmds...)
	}
	overdue.Reset(limit)
	healthy := l.pipeline(cmds)
	if then := batch[0].then; then != nil && healthy {
		cmds = then()
		dialed := l.dialed()
		healthy = l.pipeline(cmds)
		if l.dialed() != dialed { // not the same connection
			for _, cmd := range cmds {
				cmd.SetErr(errLinkClosed)
			}
		}
	}
	overdue.Stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFlight, l)
	if kept = healthy && !s.closed && l.ctx.Err() == nil; kept {
		l.proven = true
		s.idle = append(s.idle, l)
	} else {
		s.discard(l)
	}
	for _, r := range batch {
		for _, lock := range r.locks {
			if s.busy[lock]--; s.busy[lock] == 0 {
				delete(s.busy, lock)
			}
		}
		r.ended = true
		close(r.done)
	}
	s.send()
	return kept
}

// pipeline sends commands and reports whether all of them got a reply from a primary.
func (l *link) pipeline(cmds []redis.Cmder) (healthy bool) {
	if len(cmds) == 1 {
		l.client.Process(l.ctx, cmds[0])
	} else {
		l.client.Pipelined(l.ctx, func(p redis.Pipeliner) error { return p.BatchProcess(l.ctx, cmds...) })
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && (!isReply(err) || isDemoted(err)) {
			return false
		}
	}
	return true
}

// isDemoted reports whether a server says that it is no longer a primary.
func isDemoted(err error) bool { return strings.HasPrefix(err.Error(), "READONLY") }

// discard closes a connection, and marks the others to be replaced before their next use. The
// caller holds the mutex.
func (s *server) discard(l *link) {
	l.kill()
	if l.epoch == s.epoch {
		s.epoch++
	}
}

// checkPrimary checks from time to time whether the Sentinels now name another primary than the
// one to which a link is connected. An old primary that the Sentinels cannot reach may still be
// reachable from here. The caller holds the mutex.
func (s *server) checkPrimary(l *link) {
	if s.opts.Addr != failoverAddr || time.Since(s.checked) < primaryCheck {
		return
	}
	s.checked = time.Now()
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, answerTimeout)
		defer cancel()
		conn, err := s.dial(ctx, s.opts.Network, s.opts.Addr)
		if err != nil {
			return
		}
		now := conn.RemoteAddr().String()
		conn.Close()
		if before := l.remote(); before == "" || before == now {
			return
		}
		s.mu.Lock()
		if l.epoch == s.epoch {
			s.epoch++
		}
		s.mu.Unlock()
		s.hub.restart()
	})
}

// close ends all connections and waits until nothing is in flight.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	for _, r := range s.queue {
		for _, cmd := range r.cmds {
			cmd.SetErr(errClosed)
		}
		r.ended = true
		close(r.done)
	}
	s.queue = nil
	for l := range s.inFlight {
		l.kill()
	}
	for _, l := range s.idle {
		l.retire()
	}
	s.idle = nil
	s.mu.Unlock()
	s.hub.close()
	s.wg.Wait()
}
