package faultproxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
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

// echo sends a text, and wants it back.
func echo(t testing.TB, c net.Conn, text string) {
	t.Helper()
	send(t, c, text)
	want(t, c, text)
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

func TestBytesAreForwardedAndCounted(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	a, b := dial(t, p), dial(t, p)
	echo(t, a, "hello")
	echo(t, b, "you")
	suites.Eventually(t, "not 8 bytes passed on both ways", func() bool {
		return p.ToServer.Bytes() == 8 && p.ToClient.Bytes() == 8
	})
	if p.Accepted() != 2 || p.Open() != 2 {
		t.Errorf("%d connections, %d open, want 2", p.Accepted(), p.Open())
	}
	a.Close()
	suites.Eventually(t, "not one connection is open", func() bool { return p.Open() == 1 })
	if p.Accepted() != 2 {
		t.Errorf("%d connections after one was closed, want 2", p.Accepted())
	}
}

func TestHeldBytesArriveAfterHealOnTheSameConnection(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	for name, link := range map[string]*faultproxy.Link{"to the server": p.ToServer, "to the client": p.ToClient} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, p)
			link.Hold()
			send(t, c, "one ")
			send(t, c, "two")
			suites.Eventually(t, "not 7 bytes wait", func() bool { return link.Waiting() == 7 })
			wantSilence(t, c)
			p.Heal()
			want(t, c, "one two")
		})
	}
}

func TestDroppedBytesNeverArrive(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	c := dial(t, p)
	p.ToClient.Drop()
	send(t, c, "lost")
	wantSilence(t, c)
	suites.Eventually(t, "the server has not replied", func() bool { return p.ToServer.Bytes() == 4 })
	wantSilence(t, c)
	p.Heal()
	echo(t, c, "found")
}

func TestDelayDoesNotReduceThroughput(t *testing.T) {
	const delay = 100 * time.Millisecond
	p := faultproxy.Start(t, startEcho(t))
	c := dial(t, p)
	p.ToServer.Delay(delay)
	begin := time.Now()
	for range 20 {
		send(t, c, "x")
		time.Sleep(time.Millisecond) // so that each is read separately
	}
	want(t, c, "x")
	if took := time.Since(begin); took < delay {
		t.Errorf("arrived after %v, want %v", took, delay)
	}
	want(t, c, "xxxxxxxxxxxxxxxxxxx")
	if took := time.Since(begin); took >= 20*delay {
		t.Errorf("all arrived after %v: delays add up", took)
	}
}

func TestCutResetsConnectionsAndRefusesNewOnes(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	c := dial(t, p)
	echo(t, c, "hello")
	p.Cut()
	p.Cut() // a second Cut does nothing
	wantBroken(t, c)
	if p.Open() != 0 {
		t.Errorf("%d connections are open", p.Open())
	}
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("a new connection was accepted")
	}
	p.Heal()
	c = dial(t, p)
	echo(t, c, "again")
}

func TestPatientProxyWaitsForItsServer(t *testing.T) {
	addr := ports.Addr(ports.Reserve(t))
	p := faultproxy.Start(t, addr)
	p.Patient()
	c := dial(t, p)
	send(t, c, "hello")
	wantSilence(t, c)
	startServer(t, addr, func(c net.Conn) { io.Copy(c, c) })
	want(t, c, "hello")

	p.Cut()
	wantBroken(t, c)
}

func TestHoldRepliesAfterForwardsTheRequestAndHoldsTheReply(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	stranger, c := dial(t, p), dial(t, p)
	echo(t, c, "lock")
	seen := p.HoldRepliesAfter(func(b []byte) bool { return bytes.Contains(b, []byte("lock")) }) // not by the earlier bytes
	echo(t, c, "lo")
	send(t, stranger, "ck") // on another connection, so it is not part of the request
	want(t, stranger, "ck")
	send(t, c, "ck")
	select {
	case <-seen:
	case <-time.After(limit):
		t.Fatal("the request was not seen")
	}
	suites.Eventually(t, "the reply does not wait", func() bool { return p.ToClient.Waiting() == 2 })
	wantSilence(t, c)
	p.Heal()
	want(t, c, "ck")
	echo(t, c, "lock") // the hook does not fire twice
}

func TestPartitionHidesTheEndOfTheServer(t *testing.T) {
	for _, fault := range []string{"hold", "drop"} {
		t.Run(fault, func(t *testing.T) {
			down := make(chan struct{})
			p := faultproxy.Start(t, startServer(t, "127.0.0.1:0", func(c net.Conn) {
				<-down
				c.(*net.TCPConn).SetLinger(0)
			}))
			c := dial(t, p)
			send(t, c, "hello")
			suites.Eventually(t, "the server does not have the request", func() bool { return p.ToServer.Bytes() == 5 })
			if fault == "hold" {
				p.ToClient.Hold()
			} else {
				p.ToClient.Drop()
			}
			close(down)
			wantSilence(t, c)
			send(t, c, "are you there?") // the proxy cannot deliver it
			wantSilence(t, c)
			p.Heal()
			wantBroken(t, c)
		})
	}
}
