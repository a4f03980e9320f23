package servers

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A recorder is a testing.TB that is expected to fail.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf returns the message with which a test fails.
func failureOf(t *testing.T, test func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.failure
}

func TestMissingServerFailsTheTestWithAnInstruction(t *testing.T) {
	got := failureOf(t, func(t testing.TB) {
		newProcess(t).prepare(program{binary: "no-such-server"})
	})
	if want := "no-such-server is not installed; run: make deps"; got != want {
		t.Errorf("failed with %q, want %q", got, want)
	}
}

func TestServerThatDoesNotStartFailsTheTestWithItsLog(t *testing.T) {
	got := failureOf(t, func(t testing.TB) {
		StartRedis(t, RedisOptions{Config: []string{"no-such-directive yes"}})
	})
	if !strings.Contains(got, "redis-server ended while it started") || !strings.Contains(got, "no-such-directive") {
		t.Errorf("failed with %q, want the log of the server", got)
	}
}

func TestLongLogIsShownFromTheStartOfALine(t *testing.T) {
	p := &Process{dir: t.TempDir()}
	writeLines(t, p.logFile(), append([]string{strings.Repeat("x", 2*logTail)}, "the", "end"))
	if got := p.Log(); got != "the\nend" {
		t.Errorf("the log ends with %q", got)
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

func TestStoppedServerRepliesAfterContinue(t *testing.T) {
	r := StartRedis(t, RedisOptions{})
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
	var stopped, running *Redis
	t.Run("test", func(t *testing.T) {
		running = StartRedis(t, RedisOptions{})
		stopped = StartRedis(t, RedisOptions{})
		stopped.Stop()
	})
	for _, r := range []*Redis{running, stopped} {
		wantRefused(t, r.Addr())
		if r.Running() {
			t.Errorf("process %d still runs", r.PID())
		}
	}
}
