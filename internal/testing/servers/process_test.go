package servers

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestServerThatCannotStartFailsTheTestWithTheReason(t *testing.T) {
	for want, start := range map[string]func(t testing.TB){
		"^no-such-server is not installed; run: make deps$": func(t testing.TB) {
			newProcess(t).prepare(program{binary: "no-such-server"})
		},
		"(?s)^redis-server ended while it started.*no-such-directive": func(t testing.TB) {
			StartRedis(t, RedisOptions{Config: []string{"no-such-directive yes"}})
		},
	} {
		host := new(Host)
		func() {
			defer host.End()
			defer func() {
				if failure := fmt.Sprint(recover()); !regexp.MustCompile(want).MatchString(failure) {
					t.Errorf("failed with %q, want %q", failure, want)
				}
			}()
			start(host)
		}()
	}
}

func TestLongLogIsShownFromTheStartOfALine(t *testing.T) {
	p := &Process{t: t, dir: t.TempDir()}
	p.write("log", append([]string{strings.Repeat("x", 2*logTail)}, "the", "end"))
	if got := p.Log(); got != "the\nend" {
		t.Errorf("the log ends with %q", got)
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
		if conn, err := net.Dial("tcp", r.Addr()); err == nil {
			conn.Close()
			t.Errorf("%s still accepts connections", r.Addr())
		}
		if r.Running() {
			t.Errorf("process %d still runs", r.PID())
		}
	}
}
