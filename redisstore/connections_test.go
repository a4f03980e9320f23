package redisstore

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
	"unsafe"
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

// The clock of the host was an hour ahead when the call began, or is an hour behind since then.
func TestASilentConnectionIsClosedAlsoIfTheClockOfTheHostWasSet(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, hours := range []int64{1, -1} {
		for what, closeSome := range map[string]func(all *connections, begin time.Time){
			"closeSilent":     (*connections).closeSilent,
			"closeUnanswered": (*connections).closeUnanswered,
		} {
			all := &connections{dialer: dialTCP}
			c, err := all.dial(t.Context(), listener.Addr().String(), new(net.Dialer), nil)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			set := begin
			*(*uint64)(unsafe.Pointer(&set)) += uint64(hours*3600) << 30 // the time of day only
			if set.Sub(begin) != 0 || set.Unix()-begin.Unix() != hours*3600 {
				t.Fatalf("%v is not %v with another time of day", set, begin)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if closeSome(all, set); !all.none() {
				t.Errorf("%s: the connection is open although nothing was received since the call began", what)
			}
			all.closeAll(true)
		}
	}
}
