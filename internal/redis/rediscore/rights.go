package rediscore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var rightsCheck = diagnosis.New("redis.rights", store.LevelFailure,
	"locks cannot be taken, renewed or released, or waiters are not woken",
	"give the user of the store the rights that the documentation of package redisstore lists")

// commandRights are the commands that the store sends directly or through its scripts, each with
// arguments that name its keys and channels.
var commandRights = map[string][]string{
	"evalsha": {"x", "0"}, "eval": {"x", "0"}, "get": {"K"}, "set": {"K", "x"}, "incrby": {"K", "1"}, "del": {"K"},
	"rpush": {"K", "x"}, "rpop": {"K"}, "lpop": {"K"}, "lindex": {"K", "0"}, "llen": {"K"}, "lpos": {"K", "x"},
	"lrange": {"K", "0", "1"}, "lset": {"K", "0", "x"}, "lrem": {"K", "0", "x"}, "pttl": {"K"}, "pexpire": {"K", "1"},
	"pexpireat": {"K", "1"}, "time": nil, "hget": {"K", "x"}, "hset": {"K", "x", "x"}, "hsetnx": {"K", "x", "x"},
	"hdel": {"K", "x"}, "hexists": {"K", "x"}, "zadd": {"K", "1", "x"}, "zrem": {"K", "x"}, "zrange": {"K", "0", "1"},
	"zrangebyscore": {"K", "0", "1"}, "scan": {"0"}, "ping": nil, "role": nil,
}

// CommandRights returns the commands that a user of the store must be allowed to run.
func CommandRights(cluster, replicas bool) []string {
	names := slices.Collect(maps.Keys(commandRights))
	if cluster {
		names = append(names, "spublish", "ssubscribe", "sunsubscribe", "asking")
	} else {
		names = append(names, "publish", "subscribe", "unsubscribe")
	}
	if replicas {
		names = append(names, "wait")
	}
	return slices.Sorted(slices.Values(names))
}

// rightsScript returns which of the given commands the user may not run, or "?" if the server
// cannot tell. Each argument is a command with its arguments, separated by spaces.
const rightsScript = `
if not redis.acl_check_cmd then return {'?'} end
local missing = {}
for _, line in ipairs(ARGV) do
	local words = {}
	for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
	if not redis.acl_check_cmd(unpack(words)) then missing[#missing + 1] = words[1] end
end
return missing`

// lacksRights asks the server which of the necessary commands the user may not run.
func (n *node) lacksRights() (bool, string, error) {
	key := Prefix + "doctor"
	args := []string{"EVAL", rightsScript, "0"}
	commands := CommandRights(n.config.Cluster, n.config.Replicas > 0)
	for _, name := range commands {
		words := append([]string{name}, commandRights[name]...)
		switch name {
		case "publish", "spublish":
			words = append(words, key, "x")
		case "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe":
			words = append(words, key)
		case "wait":
			words = append(words, "0", "0")
		}
		args = append(args, strings.ReplaceAll(strings.Join(words, " "), " K", " "+key))
	}
	v, err := n.Do(n.ctx, args...)
	if err != nil && strings.Contains(err.Error(), "NOPERM") {
		return true, "the user may not run EVAL", nil
	}
	if err != nil {
		return false, "", err
	}
	var missing []string
	for _, name := range list(v) {
		missing = append(missing, strings.ToUpper(text(name)))
	}
	switch {
	case slices.Equal(missing, []string{"?"}):
		return false, "", errors.New("a server before Redis 7.0 cannot tell the rights of a user; see what the self-test says")
	case len(missing) > 0:
		return true, fmt.Sprintf("the user may not run %s with keys and channels that begin with %s", strings.Join(missing, ", "), Prefix), nil
	}
	return false, fmt.Sprintf("the user may run all %d commands", len(commands)), nil
}
