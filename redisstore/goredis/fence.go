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

// Fenced runs a command on a key, unless a higher token was used on the key before. It protects
// data on Redis from a holder that was paused and acts after its lease has ended: see package
// fence. Check and command are one script. Fenced uses the program's own client, with its timeouts
// and hooks, but does not repeat the command.
//
// The first argument of the command must be its key; Fenced adds it after the command's name.
// Without a command, Fenced only raises the token of the key. A holder that reads first and
// writes later calls it in that way before it reads. The highest token is kept in the key
// holdfast:fence:{KEY}, or in holdfast:fence::KEY if KEY contains a hash tag, and does not
// expire.
//
// The reply is that of the command: an int64, a string, a []any of these, or nil. The error is a
// *fence.StaleError if a higher token was seen. It matches ErrInvalid if no lease can have the
// token, or if the braces in the key make it impossible to keep the token in the same slot.
func Fenced(ctx context.Context, client redis.UniversalClient, key string, token int64, command ...string) (any, error) {
	return FencedScript(ctx, client, token, redisfence.Command, []string{key}, command...)
}

// FencedScript runs a Lua script with these KEYS and ARGV, unless a higher token was used on the
// first key before. Check and script are one step. The highest token is kept for the first key
// only, so all writes that one lock protects must name the same key first. On a Cluster all keys
// must be in one slot, by a hash tag such as {42}. The script is not repeated.
//
// The reply is the result of the script: an int64, a string, a []any of these, or nil. The error
// is a *fence.StaleError if a higher token was seen. It matches ErrInvalid if there is no key, if
// no lease can have the token, or if the braces in the first key make it impossible to keep the
// token in the same slot.
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
