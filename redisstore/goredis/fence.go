package goredis

import (
	"context"

	"github.com/redis/go-redis/v9"

	core "github.com/holdfast-lock/holdfast/internal/redis"
)

// Fenced runs a command on a key if no holder with a higher token was there before: see
// redisstore.Fenced, which it is the same as.
func Fenced(ctx context.Context, client redis.UniversalClient, key string, token int64, command ...string) (any, error) {
	call, err := core.FenceCall(key, token, command...)
	if err != nil {
		return nil, err
	}
	v, err := (&conn{client}).Eval(ctx, call)
	v, err = core.FenceAnswer(call, key, v, err)
	return v.Any(), err
}
