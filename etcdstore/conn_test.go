package etcdstore

import (
	"net"
	"testing"

	"google.golang.org/grpc/peer"
)

// A fakeConn is a connection with given addresses.
type fakeConn struct {
	net.Conn
	local, remote net.TCPAddr
	closed        bool
}

func (f *fakeConn) LocalAddr() net.Addr  { return &f.local }
func (f *fakeConn) RemoteAddr() net.Addr { return &f.remote }
func (f *fakeConn) Close() error         { f.closed = true; return nil }

// Linux gives two connections the same local port if they are to different servers.
func TestTheConnectionOfAHungServerIsFoundBesideOneWithTheSameLocalPort(t *testing.T) {
	t.Parallel()
	all := new(conns)
	var fakes [3]*fakeConn
	for i := range fakes {
		fakes[i] = &fakeConn{local: net.TCPAddr{Port: 1000}, remote: net.TCPAddr{Port: i}}
		all.all.Store(&conn{Conn: fakes[i], owner: all}, nil)
	}
	for i, want := range [][3]bool{{true, false, false}, {true, true, false}} {
		all.hung(&peer.Peer{LocalAddr: &fakes[i].local, Addr: &fakes[i].remote}, 1)
		if got := [3]bool{fakes[0].closed, fakes[1].closed, fakes[2].closed}; got != want {
			t.Errorf("server %d hangs: the connections are closed: %v, want %v", i, got, want)
		}
	}
}
