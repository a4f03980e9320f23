package servers

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
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
		newProcess(t, t.TempDir(), program{binary: "no-such-server"})
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
