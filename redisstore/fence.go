package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redis/redisfence"
)

// Fenced runs a command on a key, unless a higher token was used on the key before. It protects data on Redis
// from a holder that was paused and acts after its lease has ended: see package fence. Check and command are
// one script.
//
//	err := c.Do(ctx, "stock:42", func(ctx context.Context) error {
//		_, err := redisstore.Fenced(ctx, client, "stock:42", holdfast.TokenFrom(ctx), "DECRBY", "3")
//		return err // errors.Is(err, fence.ErrStale): a newer holder was here
//	})
//
// The first argument of the command must be its key; Fenced adds it after the command's name. Without a
// command, Fenced only raises the token of the key, as a holder that reads first and writes later must do
// before it reads. The highest token is kept in the key holdfast:fence:{KEY}, or in holdfast:fence::KEY if
// KEY contains a hash tag, and does not expire.
//
// The reply is that of the command: an int64, a string, a []any of these, or nil. The error is a
// *fence.StaleError if a higher token was seen. It matches ErrInvalid if no lease can have the token, or if
// the braces in the key make it impossible to keep the token in the same slot.
func Fenced(ctx context.Context, client rueidis.Client, key string, token int64, command ...string) (any, error) {
	return FencedScript(ctx, client, token, redisfence.Command, []string{key}, command...)
}

// FencedScript runs a Lua script with these KEYS and ARGV, unless a higher token was used on the first key
// before. Check and script are one step. The highest token is kept for the first key only, so all writes that
// one lock protects must name the same key first. On a Cluster all keys must be in one slot, by a hash tag
// such as {42}.
//
// The reply is the result of the script. Reply and error are like those of [Fenced]; there must be a key.
//
//	const order = `redis.call('DECRBY', KEYS[1], ARGV[1]); redis.call('RPUSH', KEYS[2], ARGV[2])`
//	_, err := redisstore.FencedScript(ctx, client, token, order, []string{"{42}:stock", "{42}:orders"}, "3", "order-7")
func FencedScript(ctx context.Context, client rueidis.Client, token int64, script string, keys []string, args ...string) (any, error) {
	return redisfence.Run(token, script, keys, args, func(call rediscore.Call) rediscore.Reply {
		return (&conn{client: client}).Run(ctx, call)[0]
	})
}
