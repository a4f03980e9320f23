package faultproxy_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

func TestBytesAreForwardedAndCounted(t *testing.T) {
	p := faultproxy.Start(t, startEcho(t))
	a, b := dial(t, p), dial(t, p)
	send(t, a, "hello")
	want(t, a, "hello")
	send(t, b, "you")
	want(t, b, "you")
	eventually(t, "8 bytes passed on both ways", func() bool {
		return p.ToServer.Bytes() == 8 && p.ToClient.Bytes() == 8
	})
	if p.Accepted() != 2 || p.Open() != 2 {
		t.Errorf("%d connections, %d open, want 2", p.Accepted(), p.Open())
	}
	a.Close()
	eventually(t, "one connection open", func() bool { return p.Open() == 1 })
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
			eventually(t, "7 bytes waiting", func() bool { return link.Waiting() == 7 })
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
	eventually(t, "the server has replied", func() bool { return p.ToServer.Bytes() == 4 })
	wantSilence(t, c)
	p.Heal()
	send(t, c, "found")
	want(t, c, "found")
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
	send(t, c, "hello")
	want(t, c, "hello")
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
	send(t, c, "again")
	want(t, c, "again")
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
	send(t, c, "lock")
	want(t, c, "lock")
	seen := p.HoldRepliesAfter(func(b []byte) bool { return bytes.Contains(b, []byte("lock")) }) // not by the earlier bytes
	send(t, c, "lo")
	want(t, c, "lo")
	send(t, stranger, "ck") // on another connection, so it is not part of the request
	want(t, stranger, "ck")
	send(t, c, "ck")
	select {
	case <-seen:
	case <-time.After(limit):
		t.Fatal("the request was not seen")
	}
	eventually(t, "the reply waits", func() bool { return p.ToClient.Waiting() == 2 })
	wantSilence(t, c)
	p.Heal()
	want(t, c, "ck")
	send(t, c, "lock")
	want(t, c, "lock") // the hook does not fire twice
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
			eventually(t, "the server has the request", func() bool { return p.ToServer.Bytes() == 5 })
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
