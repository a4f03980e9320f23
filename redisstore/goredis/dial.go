package goredis

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis/await"
)

const (
	// failoverAddr is the address of every client that redis.NewFailoverClient returns.
	failoverAddr = "FailoverClient"

	// dialTimeout bounds how long a call waits for the dialer. It is that of package redisstore.
	dialTimeout = 1500 * time.Millisecond

	// maxDials bounds the dials in progress through Sentinels. While no Sentinel answers, go-redis lets
	// each dial wait for those before it, so it takes longer than the time until the next one.
	maxDials = 4

	// maxDial bounds each of them. The program's own dialer may know no other limit than its context, and
	// that of go-redis for TLS ignores it. Asking all Sentinels takes less time, see the package documentation.
	maxDial = time.Minute

	// primaryCheck is the interval at which a connection that is used checks that the Sentinels
	// still name the same primary.
	primaryCheck = 2 * time.Second
)

// A dialer connects with the dialer of a client, which may ignore its context.
type dialer struct {
	network  string
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	sentinel chan struct{} // has an element for each dial in progress; nil if it asks no Sentinels for the primary
	extra    time.Duration // more time for dials through Sentinels until one has worked: see the package documentation
	worked   atomic.Bool
}

// connect has the type of rueidis.ClientOption.DialCtxFn.
func (d *dialer) connect(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := d.open(ctx, addr)
	if err != nil || d.sentinel == nil {
		return conn, err
	}
	d.worked.Store(true)
	p := &primary{Conn: conn, dialer: d}
	p.next.Store(time.Now().Add(primaryCheck).UnixNano())
	return p, nil
}

// open runs the client's dialer. A connection that is made too late is closed.
func (d *dialer) open(ctx context.Context, addr string) (net.Conn, error) {
	limit := dialTimeout
	if d.sentinel != nil && !d.worked.Load() {
		limit += d.extra
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	late := func(conn net.Conn) { conn.Close() }
	dial := func() (net.Conn, error) { return d.dial(limited, d.network, addr) }
	if d.sentinel != nil {
		dial = func() (net.Conn, error) {
			select {
			case d.sentinel <- struct{}{}:
			case <-limited.Done():
				return nil, limited.Err()
			}
			defer func() { <-d.sentinel }()
			// go-redis asks the other Sentinels if one does not reply, unless the context has ended by then.
			long, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxDial)
			defer cancel()
			return await.Call(long, func() (net.Conn, error) { return d.dial(long, d.network, addr) }, late)
		}
	}
	conn, err := await.Call(limited, dial, late)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("dial %s: no connection within %v", addr, limit) // the call that dials has more time
	}
	return conn, err
}

// A primary is a connection to the server that Sentinels named when it was opened. It is closed when they name
// another one. The old primary may still be reachable from here, although the Sentinels cannot reach it.
type primary struct {
	net.Conn
	dialer *dialer
	next   atomic.Int64 // when to check again, in Unix nanoseconds
}

func (p *primary) Write(b []byte) (int, error) {
	now := time.Now()
	if due := p.next.Load(); now.UnixNano() >= due && p.next.CompareAndSwap(due, now.Add(primaryCheck).UnixNano()) {
		go p.check()
	}
	return p.Conn.Write(b)
}

func (p *primary) check() {
	if conn, err := p.dialer.open(context.Background(), failoverAddr); err == nil {
		conn.Close()
		if conn.RemoteAddr().String() != p.RemoteAddr().String() {
			p.Conn.Close()
		}
	}
}
