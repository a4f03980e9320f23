package rediscore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/store"
)

// FenceCall is the call that runs a command on a key if the token is not lower than those
// before: see fence.lua.
func FenceCall(key string, token int64, command ...string) (Call, error) {
	if token < 1 || token > store.MaxToken {
		return Call{}, fmt.Errorf("holdfast: %w: fencing token %d: want what Lease.Token returned, a number from 1 to 2^53-1", store.ErrInvalid, token)
	}
	beside, err := fenceKey(key)
	if err != nil {
		return Call{}, err
	}
	return Call{Script: fenceScript, Keys: []string{key, beside}, Args: append([]string{strconv.FormatInt(token, 10)}, command...)}, nil
}

// fenceKey is where the highest token of a key is kept: in the same slot of a Cluster.
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

// FenceAnswer reads what fence.lua returned.
func FenceAnswer(call Call, key string, v Value, err error) (Value, error) {
	if err != nil {
		return Value{}, fmt.Errorf("holdfast: write %q with fencing token %s: %w", key, call.Args[0], err)
	}
	if len(v.List) == 0 || len(v.List) == 1 && v.List[0].Int != 1 {
		return Value{}, errRecord
	}
	if v.List[0].Int == 0 {
		token, _ := strconv.ParseInt(call.Args[0], 10, 64)
		return Value{}, &fence.StaleError{Token: token, Highest: v.List[1].Int}
	}
	if len(v.List) == 1 {
		return Value{}, nil
	}
	return v.List[1], nil
}
