package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
)

// Fenced runs a command on a key, in one script, if no holder with a higher token was there
// before. It is what protects data on Redis from a holder that was paused and acts after
// its lease: see package fence.
//
//	err := c.Do(ctx, "stock:42", func(ctx context.Context) error {
//		_, err := redisstore.Fenced(ctx, client, "stock:42", holdfast.TokenFrom(ctx), "DECRBY", "3")
//		return err // errors.Is(err, fence.ErrStale): a newer holder was here
//	})
//
// The command is one whose first argument is the key; the rest of its arguments follow.
// Without a command it only raises the key's token: a holder that reads first and writes
// later does that before it reads. The highest token is kept beside the key, in
// holdfast:fence:{KEY}, and never removed by itself.
//
// The answer is the command's: an int64, a string, a []any of these, or nil. The error is a
// *fence.StaleError if a newer token was seen.
func Fenced(ctx context.Context, client rueidis.Client, key string, token int64, command ...string) (any, error) {
	call, err := rediscore.FenceCall(key, token, command...)
	if err != nil {
		return nil, err
	}
	v, err := (&conn{client: client}).Eval(ctx, call)
	v, err = rediscore.FenceAnswer(call, key, v, err)
	return v.Any(), err
}
