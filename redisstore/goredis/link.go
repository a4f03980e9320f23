package goredis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-lock/holdfast/internal/await"
)

var errLinkClosed = errors.New("connection closed: the server did not answer in time")

// A link is one connection of the store, dialed with the options of the program's client. The
// client itself cannot be used: it honors deadlines only if its ContextTimeoutEnabled is set, it
// never honors a cancellation, and a lock must not wait for a free connection when the program has
// used up the pool.
type link struct {
	client *redis.Client
	server *server
	epoch  int  // see server.epoch
	single bool // it does not dial again
	proven bool // there was a reply; guarded by the mutex of the server

	batches chan []*request // for server.serve

	ctx    context.Context // ends with kill
	cancel context.CancelFunc

	mu    sync.Mutex
	conn  net.Conn
	dials int
}

// newLink returns a link that dials when it is first used. If single is set, the link does not
// dial again when its connection is lost.
func (s *server) newLink(single bool) *link {
	l := &link{server: s, epoch: s.epoch, single: single}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	opts := *s.opts
	opts.Dialer = l.dial
	opts.DialTimeout = answerTimeout
	opts.DialerRetries = 1
	opts.MaxRetries = -1   // the core retries, and must know when a reply was lost
	opts.ReadTimeout = -1  // none: kill ends a read
	opts.WriteTimeout = -1 // none: kill ends a write
	opts.PoolSize, opts.MinIdleConns, opts.MaxIdleConns, opts.MaxActiveConns = 1, 0, 0, 0
	opts.MaxConcurrentDials = 1
	opts.PipelinePoolSize = -1
	opts.ConnMaxIdleTime = -1
	opts.Limiter = nil
	opts.PushNotificationProcessor = nil
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opts.ClientSideCache, opts.ClientSideCacheConfig = nil, nil
	opts.ClientSideCacheRefreshOnInvalidate, opts.ClientSideCacheCoalesceMisses = false, false
	opts.ClientSideCacheInvalidationBatchWindow = 0
	l.client = redis.NewClient(&opts)
	return l
}

// dial connects with the program's own dialer, which may ignore its context.
func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	again := l.conn != nil
	l.mu.Unlock()
	if again && l.single {
		return nil, errLinkClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	conn, err := l.server.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	dropUnsent(conn)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		conn.Close()
		return nil, errLinkClosed
	}
	l.conn = conn
	l.dials++
	return conn, nil
}

// dropUnsent makes the kernel drop unsent bytes when a connection is closed. Otherwise it would
// try to send them for minutes, and a cancelled command must not arrive after the command that
// undoes it.
func dropUnsent(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = wrapped.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

// kill closes the connection, which ends all calls on it.
func (l *link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	if l.conn != nil {
		l.conn.Close()
	}
}

// retire ends an idle link.
func (l *link) retire() {
	l.kill()
	close(l.batches)
}

func (l *link) close() {
	l.kill()
	l.client.Close()
}

// dialed returns how many connections the link has had.
func (l *link) dialed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

// remote returns the address to which the link is connected, or "" if it is not connected.
func (l *link) remote() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return ""
	}
	return l.conn.RemoteAddr().String()
}

// dial runs the program's dialer, but returns when ctx ends. A connection that is made later is
// closed.
func (s *server) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case s.dials <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	dialing := ctx
	if s.opts.Addr == failoverAddr {
		// The library asks the other Sentinels when one does not reply, unless ctx has ended by then.
		dialing = context.WithoutCancel(ctx)
	}
	return await.Call(ctx, func() (net.Conn, error) {
		defer func() { <-s.dials }()
		return s.opts.Dialer(dialing, network, addr)
	}, func(conn net.Conn) { conn.Close() })
}

// isReply reports whether an error is an error reply of the server, so that the connection works.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

const (
	// answerTimeout bounds how long a connection may be silent while a reply is missing,
	// including the time to dial.
	answerTimeout = 2 * time.Second

	// suspectAfter is how long a call must have waited for its reply before its deadline counts as
	// a sign that the connection is dead. It is longer than a round trip to most servers.
	suspectAfter = 100 * time.Millisecond

	// maxDials bounds concurrent dials to one server, because the program's dialer may hang.
	maxDials = 4
)
