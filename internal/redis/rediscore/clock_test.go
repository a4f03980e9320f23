package rediscore

import (
	"testing"
	"time"
)

func TestServerClockNoticesOnlyStepsAhead(t *testing.T) {
	const ms, second = time.Millisecond, time.Second
	// Each reply has the time of the server, and those of the client before and after it.
	type reply struct{ server, sent, received time.Duration }
	for name, test := range map[string]struct {
		replies []reply
		jumps   uint64
	}{
		"steady":                     {[]reply{{100 * second, 1 * second, 2 * second}, {101 * second, 2 * second, 3 * second}, {102 * second, 3*second - ms, 3*second + ms}}, 0},
		"ahead":                      {[]reply{{100 * second, 1 * second, 1*second + ms}, {107 * second, 2 * second, 3 * second}}, 1},
		"ahead, in a push":           {[]reply{{100 * second, 1 * second, 1*second + ms}, {107 * second, 0, 3 * second}}, 1},
		"slow replies":               {[]reply{{105 * second, 1 * second, 9 * second}, {109 * second, 9 * second, 10 * second}}, 0},
		"narrowed by a second reply": {[]reply{{105 * second, 1 * second, 9 * second}, {105 * second, 9 * second, 9*second + ms}, {109 * second, 10 * second, 11 * second}}, 1},
		"behind":                     {[]reply{{100 * second, 1 * second, 1*second + ms}, {50 * second, 2 * second, 3 * second}}, 0},
		"behind, and back":           {[]reply{{100 * second, 1 * second, 1*second + ms}, {50 * second, 2 * second, 3 * second}, {103 * second, 4 * second, 4*second + ms}}, 1},
		"drift":                      {[]reply{{100 * second, 1 * second, 1*second + ms}, {200*second + 900*ms, 101 * second, 101*second + ms}}, 0},
		"more than drift":            {[]reply{{100 * second, 1 * second, 1*second + ms}, {201*second + 100*ms, 101 * second, 101*second + ms}}, 1},
		"ahead, then steady":         {[]reply{{100 * second, 1 * second, 1*second + ms}, {107 * second, 2 * second, 3 * second}, {108 * second, 3 * second, 3*second + ms}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var c serverClock
			for _, r := range test.replies {
				c.observe(r.server, r.sent, r.received)
			}
			if c.jumps != test.jumps {
				t.Errorf("%d jumps, want %d", c.jumps, test.jumps)
			}
		})
	}
}

// A message that grants a name has the time of the server, like a reply.
func TestAMessageShowsThatTheClockWasSet(t *testing.T) {
	q := newQueue(t)
	s, req := openAs(t, q.server.Addr(), "", "", Config{Counters: QuorumCounters}), q.request()
	q.refused(s, req)
	q.woken(s, req) // its subscription has started
	q.refused(s, req)
	channel := q.server.Must("PUBSUB", "CHANNELS", "*").([]any)[0].(string)
	for i, ahead := range []time.Duration{0, time.Minute} {
		now := decimal(time.Now().Add(ahead).UnixMilli())
		q.server.Must("PUBLISH", channel, req.ID.String()+"\t"+now+"\tholdfast:lock:x")
		q.woken(s, req)
		if n, _ := s.ClockJumps(); n != uint64(i) {
			t.Errorf("%d jumps after a message of a clock that is %v ahead", n, ahead)
		}
		q.refused(s, req)
	}
}
