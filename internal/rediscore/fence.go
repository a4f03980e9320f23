package rediscore

import (
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/store"
)

// FenceCommand is a script for Fence that runs the command in ARGV on KEYS[1], if there is one.
const FenceCommand = "if ARGV[1] then return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2)) end"

// Fence has run make a call that runs a script, unless a higher token than this was seen at the
// first of its keys: see fence.lua. It returns what the script returns, or a *fence.StaleError.
func Fence(token int64, script string, keys, args []string, run func(Call) Reply) (any, error) {
	if token < 1 || token > store.MaxToken {
		return nil, fmt.Errorf("holdfast: %w: fencing token %d: want what Lease.Token returned, a number from 1 to 2^53-1", store.ErrInvalid, token)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("holdfast: %w: no keys: want the keys that the script writes", store.ErrInvalid)
	}
	beside, err := fenceKey(keys[0])
	if err != nil {
		return nil, err
	}
	r := run(Call{
		Script: newScript(fenceText + script + "\nend\nreturn {1, script()}"),
		Keys:   append(keys[:len(keys):len(keys)], beside), Args: append(args[:len(args):len(args)], decimal(token)),
	})
	if r.Err == nil && len(list(r.Value)) == 2 {
		r.Err, _ = list(r.Value)[1].(error)
	}
	reply := list(r.Value)
	switch {
	case r.Err != nil:
		return nil, fmt.Errorf("holdfast: write %q with fencing token %d: %w", keys[0], token, r.Err)
	case len(reply) == 2 && reply[0] == int64(0):
		return nil, &fence.StaleError{Token: token, Highest: number(reply[1])}
	case len(reply) == 2 && reply[0] == int64(1):
		return reply[1], nil
	case len(reply) == 1:
		return nil, nil
	}
	return nil, errRecord
}

// fenceKey returns the key of the highest token, which is in the same slot of a Cluster as key.
func fenceKey(key string) (string, error) {
	const beside = Prefix + "fence:"
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return beside + key, nil // the key's own tag
		}
	}
	if key == "" || strings.Contains(key, "}") {
		return "", fmt.Errorf("holdfast: %w: key %q: want one that is not empty and has a closing brace only behind an opening one, which marks its slot", store.ErrInvalid, key)
	}
	return beside + "{" + key + "}", nil
}
