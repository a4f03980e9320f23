package servers_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// wantRefused fails the test unless the connection is refused.
func wantRefused(t testing.TB, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections", addr)
	}
}

func TestStoppedServerRepliesAfterContinue(t *testing.T) {
	r := servers.StartRedis(t, servers.RedisOptions{})
	c, err := r.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.Stop()
	if !r.Running() {
		t.Error("a stopped server does not count as running")
	}
	c.Timeout = 50 * time.Millisecond
	var timeout net.Error
	if answer, err := c.Do("PING"); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a stopped server answered %v, %v", answer, err)
	}
	r.Continue()
	c.Timeout = 5 * time.Second
	if answer, err := c.Receive(); answer != "PONG" {
		t.Errorf("the answer after the stop is %v, %v", answer, err)
	}
}

func TestServerEndsWithItsTest(t *testing.T) {
	var stopped, running *servers.Redis
	t.Run("test", func(t *testing.T) {
		running = servers.StartRedis(t, servers.RedisOptions{})
		stopped = servers.StartRedis(t, servers.RedisOptions{})
		stopped.Stop()
	})
	for _, r := range []*servers.Redis{running, stopped} {
		wantRefused(t, r.Addr())
		if r.Running() {
			t.Errorf("process %d still runs", r.PID())
		}
	}
}
