package redisstore

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func TestNoConnectionOutlivesTheStoreThatOwnsIt(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	all := &connections{dialer: dialTCP}
	dial := func() (net.Conn, error) {
		return all.dial(t.Context(), listener.Addr().String(), new(net.Dialer), nil)
	}
	if _, err := dial(); err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	all.closeAll(true)
	accepted.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still open: %v", err)
	}
	if _, err := dial(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection was made after closeAll: %v", err)
	}
}
