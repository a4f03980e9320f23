package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

const (
	// limit bounds the wait for events that should happen at once.
	limit = 10 * time.Second

	// quiet is how long to wait to see that nothing happens. If it is too short, a test may
	// miss a defect, but it never reports a false one.
	quiet = 30 * time.Millisecond
)

// startEcho starts an echo server.
func startEcho(t testing.TB) string {
	t.Helper()
	return startServer(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(c, c) })
}

// startServer starts a server that serves each connection and then closes it.
func startServer(t testing.TB, addr string, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(limit))
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return l.Addr().String()
}

// dial connects to the proxy; the connection is closed when the test ends.
func dial(t testing.TB, p *faultproxy.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(limit))
	return c.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("send %q: %v", text, err)
	}
}

// want fails the test unless exactly this text arrives next.
func want(t testing.TB, c net.Conn, text string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(limit))
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("received %q, %v, want %q", got[:n], err, text)
	}
}

// wantSilence fails the test if anything arrives, including the end of the connection.
func wantSilence(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(quiet))
	got := make([]byte, 100)
	if n, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %q, %v, want silence", got[:n], err)
	}
}

// wantBroken fails the test unless the connection is reset.
func wantBroken(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(limit))
	n, err := c.Read(make([]byte, 100))
	if n > 0 || err == nil || err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %d bytes, %v, want a broken connection", n, err)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	servers.Poll(t, limit, func() error {
		if !condition() {
			return errors.New("not the case: " + what)
		}
		return nil
	})
}
