package goredis

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redis/redisfence"
)

// Fenced runs a command on a key, unless a higher token was used on the key before: see [redisstore.Fenced]. It
// uses the program's own client, with its timeouts and hooks, but does not repeat the command.
func Fenced(ctx context.Context, client redis.UniversalClient, key string, token int64, command ...string) (any, error) {
	return FencedScript(ctx, client, token, redisfence.Command, []string{key}, command...)
}

// FencedScript runs a Lua script with these KEYS and ARGV, unless a higher token was used on the
// first key before: see [redisstore.FencedScript]. The script is not repeated.
func FencedScript(ctx context.Context, client redis.UniversalClient, token int64, script string, keys []string, args ...string) (any, error) {
	return redisfence.Run(token, script, keys, args, func(call rediscore.Call) rediscore.Reply {
		run := func(verb, script string) (any, error) {
			line := []any{verb, script, len(call.Keys)}
			for _, word := range slices.Concat(call.Keys, call.Args) {
				line = append(line, word)
			}
			cmd := once{redis.NewCmd(ctx, line...)}
			client.Process(ctx, cmd)
			return cmd.Result()
		}
		value, err := run("evalsha", call.Script.SHA)
		if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			value, err = run("eval", call.Script.Text)
		}
		if errors.Is(err, redis.Nil) {
			return rediscore.Reply{}
		}
		return rediscore.Reply{Value: value, Err: err}
	})
}

// A once is a command that go-redis does not repeat by itself.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }
