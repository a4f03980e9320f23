// Package redisfence runs scripts on Redis that check fencing tokens, for packages redisstore and goredis.
package redisfence

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/store"
)

//go:embed fence.lua
var prologue string

// Command is a script for Run. It runs the command in ARGV, if there is one, on KEYS[1].
const Command = "if ARGV[1] then return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2)) end"

// Run returns the result of a script that it runs through call, or a *fence.StaleError if a higher token was
// seen for the first of its keys: see fence.lua.
func Run(token int64, script string, keys, args []string, call func(rediscore.Call) rediscore.Reply) (any, error) {
	if token < 1 || token > store.MaxToken {
		return nil, fmt.Errorf("holdfast: %w: fencing token %d: want the result of Lease.Token, a number from 1 to 2^53-1", store.ErrInvalid, token)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("holdfast: %w: no keys: want the keys that the script writes", store.ErrInvalid)
	}
	beside, err := fenceKey(keys[0])
	if err != nil {
		return nil, err
	}
	r := call(rediscore.Call{
		Script: rediscore.NewScript(prologue + script + "\nend\nreturn {1, (script())}"),
		Keys:   append(slices.Clone(keys), beside), Args: append(slices.Clone(args), strconv.FormatInt(token, 10)),
	})
	reply, _ := r.Value.([]any)
	if r.Err == nil && len(reply) == 2 {
		r.Err, _ = reply[1].(error) // the script returned an error
	}
	switch {
	case r.Err != nil:
		return nil, fmt.Errorf("holdfast: write %q with fencing token %d: %w", keys[0], token, r.Err)
	case len(reply) == 2 && reply[0] == int64(0):
		highest, _ := reply[1].(int64)
		return nil, &fence.StaleError{Token: token, Highest: highest}
	case len(reply) == 2 && reply[0] == int64(1):
		return reply[1], nil
	case len(reply) == 1:
		return nil, nil
	}
	return nil, errors.New("holdfast: unexpected reply from the fencing script")
}

// fenceKey returns the key of the highest token, which is in the same slot of a Cluster as key.
// It is different for each key, even for "42" and "{42}", which are in the same slot.
func fenceKey(key string) (string, error) {
	const beside = rediscore.Prefix + "fence:"
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return beside + ":" + key, nil // the key's own tag
		}
	}
	if key == "" || strings.Contains(key, "}") {
		return "", fmt.Errorf("holdfast: %w: key %q: want a key that is not empty and has a closing brace only after an opening one, since braces choose the slot", store.ErrInvalid, key)
	}
	return beside + "{" + key + "}", nil
}
