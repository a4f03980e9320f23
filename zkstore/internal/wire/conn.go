// Package wire is a small ZooKeeper client: one session, over one connection at a time, and
// only the requests that zkstore needs.
//
// Requests are pipelined, and the servers answer them in order. A caller that stops waiting
// does not lose the outcome: [Call.Then] gets it. A request whose connection broke before the
// reply came fails with [ErrUnknown]; requests made while there is no connection wait for one.
// Watches end with their connection.
package wire

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Options say where to connect, and who is told what happens. Session, Event and [Call.Then]
// are called by one goroutine, in the order in which the servers sent things. They must not
// block.
type Options struct {
	Servers []string                    // HOST:PORT each; tried in random order
	Timeout time.Duration               // of the session, to ask for
	Auth    string                      // USER:PASSWORD of the digest scheme, or empty
	TLS     func() (*tls.Config, error) // called for every connection; nil for plain TCP

	// Session is called when a session has begun or was resumed over a new connection, with
	// the timeout that the server grants; and with id 0 when it has ended. Event is called
	// when a watched node has changed.
	Session func(id int64, timeout time.Duration)
	Event   func(path string)
}

const (
	// hangLimit is how long a server may be silent while it owes a reply, if there is another
	// one to go to. It is far above a pause of a healthy server, and leaves time for a second
	// attempt within the time limit of a call. While no server answers it doubles, up to
	// maxPatience times, so that slow servers are not left too early.
	hangLimit   = 1500 * time.Millisecond
	maxPatience = 2

	// soleHangLimit is for a single server: a new connection mends a broken network path, but
	// not a slow server.
	soleHangLimit = 4 * time.Second

	pings = 10 // in the time of a session, of an idle server

	firstPause   = 50 * time.Millisecond // after all servers were tried in vain; it doubles
	longestPause = time.Second
)

// A Call is one request. Op and Then are set before it is sent. The results can be read in
// Then, or when Do has returned something else than the error of its context.
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

// A Conn is a client. When its session has ended it begins another.
type Conn struct {
	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ended  chan struct{}

	// Of the goroutine that connects and reads.
	session  int64
	password []byte
	timeout  time.Duration
	zxid     int64     // the highest that was seen in this session
	next     int       // server
	patience int       // how often hangLimit is doubled
	lost     time.Time // when the last connection with the session ended
	refused  bool      // a server does not resume the session, though its time is over

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

// Failure returns why the last attempt to connect failed, nil if it did not.
func (c *Conn) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Do sends calls in this order, with nothing in between, and waits for all of them. It returns
// the error of the first that failed, or that of the context.
func (c *Conn) Do(ctx context.Context, calls ...*Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.Send(calls...)
	var err error
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
		go finishAll(calls, ErrClosed) // Then may need what the caller has locked
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

// dequeue fails those of the calls that are not sent yet, or with no calls all of them.
func (c *Conn) dequeue(err error, calls ...*Call) {
	var out []*Call
	c.mu.Lock()
	c.queue = slices.DeleteFunc(c.queue, func(call *Call) bool {
		match := len(calls) == 0 || slices.Contains(calls, call)
		if match {
			out = append(out, call)
		}
		return match
	})
	c.mu.Unlock()
	finishAll(out, err)
}

// Close ends the session if that can be done before ctx ends. Otherwise, or if end is false, the
// servers end it after its timeout. When Close returns, all calls have an outcome and nothing is
// running any more.
func (c *Conn) Close(ctx context.Context, end bool) {
	c.mu.Lock()
	end = end && c.link != nil
	c.mu.Unlock()
	if end {
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
		} else { // such as a server that refuses the user
			failed++
			c.failed(err)
		}
		l.close()
	}
}

// failed notes the outcome of an attempt to connect.
func (c *Conn) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
}

// end gives up the session.
func (c *Conn) end() {
	c.session, c.password, c.zxid = 0, nil, 0
	c.opts.Session(0, 0)
	c.dequeue(ErrLost)
}

// silence is how long a server may owe a reply.
func (c *Conn) silence() time.Duration {
	limit := hangLimit << c.patience
	if len(c.opts.Servers) == 1 {
		limit = soleHangLimit
	}
	return min(limit, c.timeout/3)
}
