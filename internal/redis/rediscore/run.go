package rediscore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Bounds of the pause between two attempts while a slot of a Cluster migrates.
const minSlotPause, maxSlotPause = 5 * time.Millisecond, 100 * time.Millisecond

// run makes one call and returns its reply. While a slot of a Cluster migrates, the server refuses a script
// with TRYAGAIN unless it has all of its keys. Such a script has changed nothing, and is repeated until ctx
// ends, unless a script with one key can do the same.
func (s *Store) run(ctx context.Context, call Call) (any, error) {
	var moving error
	for pause := minSlotPause; ; pause = min(2*pause, maxSlotPause) {
		r := s.send(ctx, call)
		switch {
		case r.Err == nil && call.fallback != nil && r.Value == int64(-1):
			call = call.fallback()
			continue
		case r.Err == nil:
			return r.Value, nil
		case strings.HasPrefix(r.Err.Error(), "TRYAGAIN"):
			moving = r.Err
			if call.moving != nil {
				if r := s.send(ctx, *call.moving); r.Err == nil && r.Value != int64(-1) {
					return r.Value, nil
				}
			}
		case moving == nil || ctx.Err() == nil:
			return nil, s.explain(ctx, r.Err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, s.explain(ctx, moving)
		}
	}
}

// runAll makes many calls and returns a reply to each. The shards of a Cluster must not wait for each other,
// so each call to a Cluster is sent separately, and the library pipelines those that go to one server.
func (s *Store) runAll(ctx context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	if !s.config.Cluster {
		replies = s.conn.Run(ctx, calls...)
	}
	var wg sync.WaitGroup
	for i := range calls {
		r, call := &replies[i], calls[i]
		switch {
		case s.config.Cluster:
			wg.Go(func() { r.Value, r.Err = s.run(ctx, call) })
		case r.Err != nil:
			r.Err = s.explain(ctx, r.Err)
		case call.fallback != nil && r.Value == int64(-1):
			wg.Go(func() { r.Value, r.Err = s.run(ctx, call.fallback()) })
		}
	}
	wg.Wait()
	return replies
}

const (
	noRights   = "the user of the URL has no right to do this: give it the rights that the package documentation lists"
	noPassword = "the server requires a user or password: put it into the URL, as in redis://user:password@host, or into the options of the client"
	noScripts  = "this is not a Redis server, perhaps a Sentinel: write redis+sentinel://HOST/NAME, or make the client with NewFailoverClient"
	inCluster  = "this is a node of a Cluster: write redis+cluster:// instead of redis://, or make the client with NewClusterClient"
)

// advice says what to do about an error whose text contains a word.
var advice = []struct{ word, advice string }{
	{"NOPERM", noRights},
	{"The user executing the script", noRights},
	{"MOVED", inCluster},
	{"CROSSSLOT", inCluster}, // the reply to a script with several keys
	{"TRYAGAIN", "the slot of this name is being moved to another server: try again when that is done"},
	{"NOAUTH", noPassword},
	{"unauthenticated", noPassword}, // the reply to a long command before the login
	{"WRONGPASS", "the user or the password is wrong: check the URL, or the options of the client"},
	{"READONLY", "this is a replica: use the address of the primary, or Sentinel or Cluster"},
	{"unknown command 'EVALSHA'", noScripts}, // as rueidis spells it
	{"unknown command 'evalsha'", noScripts}, // as go-redis spells it
	{"OOM", "the server has no memory left: raise maxmemory, with maxmemory-policy noeviction"},
	{"MISCONF", "the server cannot save its data: check its log and its disk"},
	{"LOADING", "the server is starting; it answers when it has read its data"},
}

// explain adds advice to an error.
func (s *Store) explain(ctx context.Context, err error) error {
	text := err.Error()
	switch {
	case s.calls.Closing.Err() != nil:
		return s.calls.ErrClosed
	case ctx.Err() != nil && !errors.As(err, new(*ReplicasError)) && !strings.HasPrefix(text, "TRYAGAIN"):
		return ctx.Err()
	case s.config.Cluster && strings.HasPrefix(text, "MOVED"): // the reply to a subscription, which the library does not redirect
		return fmt.Errorf("redis store: %w", err)
	}
	return Advise(err)
}

// Advise adds what to do to an error of a server.
func Advise(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") { // of name.lua, or of a command that found a key of another type
		return store.UnknownFormat("redis store: " + err.Error())
	}
	for _, known := range advice {
		if strings.Contains(err.Error(), known.word) {
			return fmt.Errorf("redis store: %w: %s", err, known.advice)
		}
	}
	return fmt.Errorf("redis store: %w", err)
}
