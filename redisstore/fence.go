package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redisfence"
)

// Fenced runs a command on a key, unless a holder with a higher token was there before. It
// protects data on Redis from a holder that was paused and acts after its lease has ended: see
// package fence. Check and command are one script.
//
//	err := c.Do(ctx, "stock:42", func(ctx context.Context) error {
//		_, err := redisstore.Fenced(ctx, client, "stock:42", holdfast.TokenFrom(ctx), "DECRBY", "3")
//		return err // errors.Is(err, fence.ErrStale): a newer holder was here
//	})
//
// The command is one whose first argument is the key; its other arguments follow. Without a
// command Fenced only raises the token of the key: a holder that reads first and writes later
// does that before it reads. The highest token is kept beside the key, and does not expire: in
// holdfast:fence:{KEY}, or in holdfast:fence::KEY if the key contains a hash tag.
//
// The reply is that of the command: an int64, a string, a []any of these, or nil. The error is a
// *fence.StaleError if a higher token was seen. It matches ErrInvalid if the token is not one of
// a lease, or the key cannot have another one beside it.
func Fenced(ctx context.Context, client rueidis.Client, key string, token int64, command ...string) (any, error) {
	return FencedScript(ctx, client, token, redisfence.Command, []string{key}, command...)
}

// FencedScript is like Fenced for a Lua script over several keys, which are KEYS and ARGV of the
// script. The highest token is kept beside the first key, so all writes that one lock protects
// must name the same key first. On a Cluster all keys must be in one slot, by a hash tag such as
// {42}.
//
//	const order = `redis.call('DECRBY', KEYS[1], ARGV[1]); redis.call('RPUSH', KEYS[2], ARGV[2])`
//	_, err := redisstore.FencedScript(ctx, client, token, order, []string{"{42}:stock", "{42}:orders"}, "3", "order-7")
func FencedScript(ctx context.Context, client rueidis.Client, token int64, script string, keys []string, args ...string) (any, error) {
	return redisfence.Run(token, script, keys, args, func(call rediscore.Call) rediscore.Reply {
		return (&conn{client: client}).Run(ctx, call)[0]
	})
}
