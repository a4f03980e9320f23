package rediscore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CommandRights returns the commands that a user of the store must be allowed to run.
func CommandRights(cluster, replicas bool) []string {
	names := strings.Fields("asking del eval evalsha get hdel hexists hget hset hsetnx incrby lindex llen lpop lpos lrange lrem lset" +
		" pexpire pexpireat ping pttl role rpop rpush scan set time zadd zrange zrangebyscore zrem")
	if cluster {
		names = append(names, "spublish", "ssubscribe", "sunsubscribe")
	} else {
		names = append(names[1:], "publish", "subscribe", "unsubscribe")
	}
	if replicas {
		names = append(names, "wait")
	}
	return names
}

// rightsScript returns which of the given commands the user may not run, or "?" if the server cannot tell.
// Some servers crash if a command has too few arguments.
const rightsScript = `
if not redis.acl_check_cmd then return {'?'} end
local key, missing = ARGV[1], {}
for i = 2, #ARGV do
	local args = string.find(ARGV[i], 'eval') and {key, '0'} or {key, key, key}
	if not redis.acl_check_cmd(ARGV[i], unpack(args)) then missing[#missing + 1] = string.upper(ARGV[i]) end
end
return missing`

// lacksRights asks the server which of the necessary commands the user may not run.
func (n *node) lacksRights() (bool, string) {
	commands := CommandRights(n.config.Cluster, n.config.Replicas > 0)
	v, err := n.Do(n.ctx, append([]string{"EVAL", rightsScript, "0", Prefix + "doctor"}, commands...)...)
	var missing []string
	for _, name := range list(v) {
		missing = append(missing, text(name))
	}
	switch {
	case err != nil && strings.Contains(err.Error(), "NOPERM"):
		return true, "the user may not run EVAL"
	case slices.Equal(missing, []string{"?"}):
		err = errors.New("a server before Redis 7.0 cannot tell the rights of a user; see what the self-test says")
	case len(missing) > 0:
		return true, fmt.Sprintf("the user may not run %s with keys and channels that begin with %s", strings.Join(missing, ", "), Prefix)
	}
	n.fail(err)
	return false, fmt.Sprintf("the user may run all %d commands", len(commands))
}
