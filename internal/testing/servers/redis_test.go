package servers_test

import (
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// wantAnswer fails the test unless a command has this reply.
func wantAnswer(t testing.TB, r *servers.Redis, want any, args ...string) {
	t.Helper()
	if got := r.Must(args...); got != want {
		t.Errorf("%s: got %v, want %v", strings.Join(args, " "), got, want)
	}
}

// wantRefused fails the test unless the connection is refused.
func wantRefused(t testing.TB, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections", addr)
	}
}

func TestKilledServerComesBackWithItsData(t *testing.T) {
	r := servers.StartRedis(t, servers.RedisOptions{})
	r.Must("SET", "k", "v")
	pid := r.PID()
	r.Kill()
	wantRefused(t, r.Addr())
	if r.Running() {
		t.Error("a killed server is running")
	}
	r.Kill() // a second Kill does nothing
	r.Restart()
	wantAnswer(t, r, "v", "GET", "k")
	if r.PID() == pid {
		t.Error("the process is still the same")
	}
}

func TestWipeLosesTheData(t *testing.T) {
	r := servers.StartRedis(t, servers.RedisOptions{})
	r.Must("SET", "k", "v")
	r.Wipe()
	wantAnswer(t, r, int64(0), "DBSIZE")
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

func TestRepliesOfEveryKindAreParsed(t *testing.T) {
	r := servers.StartRedis(t, servers.RedisOptions{})
	script := `return {1, "two", false, {redis.status_reply("OK")}, redis.error_reply("ERR five")}`
	got := r.Must("EVAL", script, "0")
	if want := []any{int64(1), "two", nil, []any{"OK"}, servers.RESPError("ERR five")}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
	var refusal servers.RESPError
	if _, err := r.Do("NONSENSE"); !errors.As(err, &refusal) {
		t.Errorf("unknown command: %v", err)
	}
	wantAnswer(t, r, nil, "GET", "nothing")
	wantAnswer(t, r, "OK", "SET", "k", "a\r\nb")
	wantAnswer(t, r, "a\r\nb", "GET", "k")
}
