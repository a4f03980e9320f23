package goredis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
)

// Fenced runs a command on a key if no holder with a higher token was there before: see
// redisstore.Fenced, which does the same. It uses the program's own client, with its timeouts
// and hooks, but does not repeat the command.
func Fenced(ctx context.Context, client redis.UniversalClient, key string, token int64, command ...string) (any, error) {
	call, err := rediscore.FenceCall(key, token, command...)
	if err != nil {
		return nil, err
	}
	c := newCommand(&call)
	cmd := once{redis.NewCmd(ctx, c.args...)}
	client.Process(ctx, cmd)
	if isNoScript(cmd.Err()) {
		cmd = once{redis.NewCmd(ctx, c.text...)}
		client.Process(ctx, cmd)
	}
	v, err := valueOf(cmd.Cmd)
	v, err = rediscore.FenceAnswer(call, key, v, err)
	return v.Any(), err
}

// A once is a command that go-redis does not repeat by itself.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }
