// Package wire is a small ZooKeeper client: one session, over one connection at a time, and only the
// requests that zkstore needs.
//
// Requests are pipelined, and the servers reply in order. [Call.Then] gets the outcome even if the caller
// has stopped waiting. A request whose connection is lost before the reply arrives fails with [ErrUnknown].
// Requests made without a connection wait for one. Watches end with their connection.
package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Options are the settings of a client. Session, Event and [Call.Then] are called by one goroutine, in the
// order in which packets arrive. They must not block.
type Options struct {
	Servers []string           // HOST:PORT each; tried in random order
	Timeout time.Duration      // timeout of the session to request
	Auth    string             // USER:PASSWORD of the digest scheme, or empty
	TLS     func() *tls.Config // called for every connection; nil for plain TCP

	// Session is called when a session has begun or was resumed over a new connection, with the granted
	// timeout, and with id 0 when it has ended. Event is called when a watched node has changed, or only
	// the list of its children.
	Session func(id int64, timeout time.Duration)
	Event   func(path string, children bool)
}

const (
	// hangLimit is how long a server may be silent while it owes a reply, if there are other servers. It is
	// far longer than the pauses of a healthy server, and leaves time for a second attempt within the time
	// limit of a call. While no server replies, it doubles, up to maxPatience times, so that a client does
	// not leave slow servers too early.
	hangLimit   = 1500 * time.Millisecond
	maxPatience = 2

	soleHangLimit = 4 * time.Second       // limit of a single server; a new connection helps only if a network path is broken
	pings         = 10                    // how many pings an idle client sends during the session timeout
	firstPause    = 50 * time.Millisecond // first pause after no server could be reached; it doubles
	longestPause  = time.Second
)

// A Call is one request. Op and Then are set before it is sent. The results can be read in Then, and after Do
// unless Do returned the error of its context: then the call may still be in flight.
type Call struct {
	Op
	Then func(*Call) // called once with the outcome, before Do returns; may be nil

	Result
	Parts []Result // of a Multi

	xid  int32
	done chan struct{}
}

// finish ends a call with an error, or with the results that it has.
func (c *Call) finish(err error) {
	if err != nil {
		c.Err = err
	}
	if c.Then != nil {
		c.Then(c)
	}
	close(c.done)
}

type session struct {
	id, zxid int64 // the zxid is the highest that was seen
	password [16]byte
}

// A Conn is a client. When its session has ended, it begins another one.
type Conn struct {
	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{}

	// The next fields are used only by the goroutine that connects and reads.
	session  session
	timeout  time.Duration
	next     int       // index of the next server
	patience int       // how often hangLimit is doubled
	lost     time.Time // when the last connection with the session ended
	refused  bool      // a server did not resume the session, and the session timeout has passed

	mu      sync.Mutex
	closed  bool
	failure error   // of the last attempt to connect
	link    *link   // nil without a session
	queue   []*Call // not sent yet
}

// Dial starts a client and returns at once.
func Dial(opts Options) *Conn {
	opts.Servers = slices.Clone(opts.Servers)
	rand.Shuffle(len(opts.Servers), func(i, j int) { opts.Servers[i], opts.Servers[j] = opts.Servers[j], opts.Servers[i] })
	c := &Conn{opts: opts, timeout: opts.Timeout, ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c
}

// Alone starts a client for some of the servers, with the same user and a session of its own.
func (c *Conn) Alone(servers ...string) *Conn {
	opts := c.opts
	opts.Servers = servers
	opts.Session, opts.Event = func(int64, time.Duration) {}, func(string, bool) {}
	return Dial(opts)
}

// Servers returns the addresses of the servers, and the requested session timeout.
func (c *Conn) Servers() (addrs []string, timeout time.Duration) {
	return slices.Sorted(slices.Values(c.opts.Servers)), c.opts.Timeout
}

// Failure returns why the last attempt to connect failed, or nil.
func (c *Conn) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Connected reports whether calls are sent at once.
func (c *Conn) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil
}

// Do sends calls in this order, with nothing in between, and waits for them like Wait.
func (c *Conn) Do(ctx context.Context, calls ...*Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.Send(calls...)
	return c.Wait(ctx, calls...)
}

// Wait waits for calls that were sent. It returns the error of the first one that failed, or of the context.
func (c *Conn) Wait(ctx context.Context, calls ...*Call) (err error) {
	for _, call := range calls {
		select {
		case <-call.done:
			if err == nil {
				err = call.Err
			}
		case <-ctx.Done():
			c.dequeue(ErrNotSent, calls...)
			return ctx.Err()
		}
	}
	return err
}

// Send sends calls without waiting for their outcome.
func (c *Conn) Send(calls ...*Call) {
	for _, call := range calls {
		call.done = make(chan struct{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		go finishAll(calls, ErrClosed) // on a goroutine, because Then may need a mutex that the caller holds
	case c.link != nil:
		c.link.send(calls...)
	default:
		c.queue = append(c.queue, calls...)
	}
}

func finishAll(calls []*Call, err error) {
	for _, call := range calls {
		call.finish(err)
	}
}

// dequeue fails the given calls that were not sent yet, or all unsent calls if none are given.
func (c *Conn) dequeue(err error, calls ...*Call) {
	var out []*Call
	c.mu.Lock()
	c.queue = slices.DeleteFunc(c.queue, func(call *Call) bool {
		if len(calls) > 0 && !slices.Contains(calls, call) {
			return false
		}
		out = append(out, call)
		return true
	})
	c.mu.Unlock()
	finishAll(out, err)
}

// Close ends the session if that can be done before ctx ends. Otherwise, or if end is false, the servers end
// it after its timeout. When Close returns, all calls have an outcome and no goroutine is left.
func (c *Conn) Close(ctx context.Context, end bool) {
	if end && c.Connected() {
		_ = c.Do(ctx, &Call{Op: Op{kind: opClose}})
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	<-c.ended
}

// run connects to one server after the other until the client is closed.
func (c *Conn) run() {
	defer close(c.ended)
	defer func() { c.dequeue(ErrClosed) }()
	pause := firstPause
	for failed := 0; c.ctx.Err() == nil; {
		if failed == len(c.opts.Servers) {
			select {
			case <-time.After(pause/2 + rand.N(pause/2)):
			case <-c.ctx.Done():
			}
			failed, pause = 0, min(2*pause, longestPause)
			c.patience = min(c.patience+1, maxPatience)
		}
		server := c.opts.Servers[c.next%len(c.opts.Servers)]
		c.next++
		l, err := c.connect(server)
		c.failed(err)
		if err != nil {
			failed++
			continue
		}
		if err = l.serve(); err == errHung {
			c.patience = min(c.patience+1, maxPatience)
		}
		c.lost = time.Now()
		if l.replied {
			failed, pause = 0, firstPause
		} else { // for example a server that refuses the user
			failed++
			c.failed(err)
		}
		l.close()
	}
}

func (c *Conn) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
}

// end gives up the session.
func (c *Conn) end() {
	c.session = session{}
	c.opts.Session(0, 0)
	c.dequeue(ErrLost)
}

// silence returns how long a server may take to reply.
func (c *Conn) silence() time.Duration {
	limit := hangLimit << c.patience
	if len(c.opts.Servers) == 1 {
		limit = soleHangLimit
	}
	return min(limit, c.timeout/3)
}

// Word sends a four-letter command, such as "srvr", to a server over a connection of its own, and
// returns the reply. Servers reply only to commands of their 4lw.commands.whitelist.
func (c *Conn) Word(ctx context.Context, server, word string) (string, error) {
	conn, err := c.dial(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	reply, err := io.ReadAll(io.LimitReader(conn, maxFrame))
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(reply), err
}
