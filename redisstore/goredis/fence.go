package goredis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redisfence"
)

// Fenced runs a command on a key, unless a holder with a higher token was there before. It
// protects data on Redis from a holder that was paused and acts after its lease has ended: see
// package fence, and redisstore.Fenced, which does the same. It uses the program's own client,
// with its timeouts and hooks, but does not repeat the command.
//
// The error is a *fence.StaleError if a higher token was seen. It matches ErrInvalid if the token
// is not one of a lease, or the key cannot have another one beside it.
func Fenced(ctx context.Context, client redis.UniversalClient, key string, token int64, command ...string) (any, error) {
	return FencedScript(ctx, client, token, redisfence.Command, []string{key}, command...)
}

// FencedScript is like Fenced for a Lua script over several keys, which are KEYS and ARGV of the
// script. The highest token is kept beside the first key, so all writes that one lock protects
// must name the same key first. On a Cluster all keys must be in one slot, by a hash tag such as
// {42}.
func FencedScript(ctx context.Context, client redis.UniversalClient, token int64, script string, keys []string, args ...string) (any, error) {
	return redisfence.Run(token, script, keys, args, func(call rediscore.Call) rediscore.Reply {
		c := newCommand(&call)
		cmd := once{redis.NewCmd(ctx, c.args...)}
		client.Process(ctx, cmd)
		if isNoScript(cmd.Err()) {
			cmd = once{redis.NewCmd(ctx, c.text...)}
			client.Process(ctx, cmd)
		}
		return replyOf(cmd.Cmd)
	})
}

// A once is a command that go-redis does not repeat by itself.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }
