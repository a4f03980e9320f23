package rediscore

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file has what only the nodes of a quorum use: see quorum.Passer.

// A note is what a holder passed on together with the name.
type note struct {
	text string
	sent time.Duration // when the request that was granted was sent, since base
}

// parseNote parses the end of the record of a holder: see name.lua. A note for a request that another
// handle sent does not count, because the handles may have different clocks.
func parseNote(text, channel string) note {
	f := fields{rest: text}
	f.next() // the text begins with a tab, unless there is no note
	n := note{text: f.next(), sent: time.Duration(f.int())}
	if f.err != nil || f.next() != channel {
		return note{}
	}
	return n
}

// AcquireNoted is like Acquire, and a holder may pass the name on to a request that it queues: see
// Pass. Then it returns the note as well, and the time since the request that was granted was sent.
func (s *Store) AcquireNoted(ctx context.Context, req store.Request) (answer store.Answer, text string, age time.Duration, err error) {
	answer, n, err := s.take(ctx, &req, true)
	if n.text == "" {
		return answer, "", 0, err
	}
	return answer, n.text, sinceBase() - n.sent, err
}

// Pass ends a grant if token is its token, and the first waiter can be granted the name at once, wants
// one token and sent its last request before that token was granted. The waiter gets a token above
// floor, and the note. Otherwise Pass changes nothing, and returns false, or ErrNotHeld if the identity does not
// have the grant. Then it may have been passed on by an earlier copy of the same call.
func (s *Store) Pass(ctx context.Context, name string, id store.ID, token, floor int64, note string) (passed bool, err error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.calls.Leave()
	v, err := s.run(ctx, Call{
		Script: releaseScript, Keys: s.keys(name),
		Args: []string{s.publish(), id.String(), "pass", "0", "0", note, decimal(token), decimal(floor)},
	})
	switch {
	case err != nil:
		return false, err
	case v == int64(-1):
		return false, store.ErrNotHeld
	case v != int64(0) && v != int64(1):
		return false, errRecord
	}
	return v == int64(1), nil
}

// LeaveNoted is like Leave, and returns the note of a grant that was passed on.
func (s *Store) LeaveNoted(ctx context.Context, name string, id store.ID) (note string, err error) {
	defer s.waits.forget(name, id)
	return s.release(ctx, name, id, "leave", store.Keep{})
}

// Rename gives an exclusive grant to another identity, with another TTL, and with tokens that are not
// below the given ones. It returns false if neither identity has a grant.
func (s *Store) Rename(ctx context.Context, from store.ID, to store.Request, token int64) (renamed bool, err error) {
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.calls.Leave()
	v, err := s.run(ctx, Call{
		Script: renameScript, Keys: s.keys(to.Name),
		Args: []string{s.publish(), from.String(), to.ID.String(), to.Owner, to.Meta, millis(to.TTL), decimal(token), strconv.Itoa(max(1, to.Tokens))},
	})
	if err == nil && v != int64(0) && v != int64(1) {
		err = errRecord
	}
	return v == int64(1), err
}
