package redis

import (
	"context"
	"strconv"
	"time"
)

const (
	// MaxFlying is how many plain calls are on their way each for itself before others go
	// together: the server does one thing at a time. If it is far away, up to mostFlying
	// follow, a pause after the last each.
	MaxFlying  = 2
	mostFlying = 16
	pause      = 100 * time.Microsecond

	// maxMany bounds how many go together: how long a script holds up all other clients.
	maxMany = 32

	// undoTime bounds how long it is tried to give back what nobody waits for.
	undoTime = 5 * time.Second
)

// A plainCall takes a lock the plain way, or gives it back.
type plainCall struct {
	key    string
	record string // without its token if it is taken
	ttl    string // "" if it is given back
	value  Value
	err    error
}

// initMany prepares what sends plain calls together, in one script: by themselves each would
// need a packet and a script of its own.
func (s *Store) initMany() {
	s.life, s.end = context.WithCancel(context.Background())
	s.many.Flying, s.many.Size = MaxFlying, maxMany
	s.many.Most, s.many.Pause = mostFlying, pause
	s.many.Send = s.sendMany
	s.many.Late = s.undo
}

// plain does a call, together with others if there are many. Alone is the same for itself.
func (s *Store) plain(ctx context.Context, call *plainCall, alone func() (Value, error)) (Value, error) {
	if s.config.Cluster || s.config.Replicas > 0 { // each has a server and an answer of its own
		v, err := alone()
		if err != nil {
			err = s.explain(ctx, err)
		}
		return v, err
	}
	err := s.many.Do(ctx, call, func() { call.value, call.err = alone() })
	if err == nil {
		err = call.err
	}
	if err != nil {
		return Value{}, s.explain(ctx, err)
	}
	return call.value, nil
}

// SendFew keeps all but MaxFlying calls waiting, however far the server is. It is for tests.
func SendFew(s *Store) { s.many.Most = 0 }

// Underway is how many plain calls are on their way, or wait for that.
func Underway(s *Store) int { return s.many.Len() }

// sendMany runs many.lua.
func (s *Store) sendMany(calls []*plainCall) {
	now, known := s.clocks[0].at(sinceBase())
	if !known {
		now = 0 // tokens are not far behind: whoever is here knew the clock just now
	}
	taken := 0
	keys := make([]string, 1, len(calls)+1)
	keys[0] = s.keys.counter(0)
	args := make([]string, 2, 2+2*len(calls))
	for _, c := range calls {
		if c.ttl != "" {
			taken++
		}
		keys = append(keys, c.key)
		args = append(args, c.record, c.ttl)
	}
	args[0], args[1] = strconv.FormatInt(now.Microseconds(), 10), strconv.Itoa(taken)
	v, err := s.conn.Eval(s.life, Call{Script: many, Keys: keys, Args: args})
	if err == nil && len(v.List) != len(calls) {
		err = errRecord
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.value = v.List[i]
		}
	}
}

// undo gives back a lock that was taken for somebody who has given up. What it has sent to undo
// that may have been quicker.
func (s *Store) undo(c *plainCall) {
	if c.ttl == "" || c.err != nil || c.value.Kind != Int {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, undoTime)
	defer cancel()
	s.conn.Do(ctx, "LREM", c.key, "1", c.record+strconv.FormatInt(c.value.Int, 10)) // or its TTL ends it
}
