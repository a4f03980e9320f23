package etcdstore

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
)

// conns are the connections of a client that this package made. A connection to a server that hangs can be
// closed: calls and watches then use the other servers until it answers again. Otherwise gRPC would send it a
// part of all calls for another 13 seconds. TLS begins here, because gRPC reads certificates only once.
type conns struct {
	files *tlsurl.Source // nil without TLS
	all   sync.Map       // of *conn
}

type conn struct {
	net.Conn
	owner *conns
	heard atomic.Int64 // when something was last received, since base
}

func (c *conns) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	one := &conn{Conn: raw, owner: c}
	c.all.Store(one, nil)
	if c.files == nil {
		return one, nil
	}
	config := c.files.Config()
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(one, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		one.Close()
		return nil, err
	}
	return secure, nil
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(int64(sinceBase()))
	}
	return n, err
}

func (c *conn) Close() error {
	c.owner.all.Delete(c)
	return c.Conn.Close()
}

// hung closes the connection of a call that was sent at that time and got no reply, unless
// something else has been received on it since.
func (c *conns) hung(p *peer.Peer, began time.Duration) {
	if c == nil || p == nil || p.LocalAddr == nil {
		return
	}
	for key := range c.all.Range {
		one := key.(*conn) // connections to different servers may have the same local address
		same := one.LocalAddr().String() == p.LocalAddr.String() && one.RemoteAddr().String() == p.Addr.String()
		if same && time.Duration(one.heard.Load()) < began {
			one.Close()
		}
	}
}
