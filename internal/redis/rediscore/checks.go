package rediscore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// Least versions that have all commands. The store needs LPOS, and on a Cluster SPUBLISH.
	leastVersion, leastClusterVersion = "6.0.6", "7.0.0"

	most    = 80             // percent of memory or connections that may be in use
	minPush = 1 << 20        // bytes that a subscriber should be allowed to lag behind
	slowAge = 24 * time.Hour // how far back entries of the slow log are reported
)

// A look examines a server: see diagnosis.Probe. Its error is the err of the node.
type look = func(n *node) (bad bool, found string)

func probe(id string, level store.Level, risk, remedy string, look look) diagnosis.Probe[*node] {
	return probeFor(diagnosis.New(id, level, risk, remedy), look)
}

func probeFor(check *diagnosis.Check, look look) diagnosis.Probe[*node] {
	return diagnosis.Probe[*node]{
		Check: check,
		Look: func(n *node) (bool, string, error) {
			n.err = nil
			bad, found := look(n)
			return bad, found, n.err
		},
	}
}

// none looks whether a counter in INFO is 0. What says what it counts.
func none(field, what string) look {
	return func(n *node) (bool, string) {
		count := n.count(field)
		return count > 0, fmt.Sprintf("%d %s since the start", count, what)
	}
}

// setTo looks whether a setting has one of the safe values.
func setTo(name string, safe ...string) look {
	return func(n *node) (bool, string) {
		value := n.setting(name)
		return !slices.Contains(safe, value), name + " " + value
	}
}

// ifSo looks only at servers that meet a condition.
func ifSo(condition func(n *node) bool, look look) look {
	return func(n *node) (bool, string) {
		if !condition(n) {
			n.fail(diagnosis.ErrNotApplicable)
			return false, ""
		}
		return look(n)
	}
}

var probes = []diagnosis.Probe[*node]{
	probe("redis.rights", store.LevelFailure,
		"locks cannot be taken, renewed or released, or waiters are not woken",
		"give the user of the store the rights that the documentation of package redisstore lists",
		(*node).lacksRights),
	probe("redis.version", store.LevelFailure,
		"the scripts use commands that this version does not have, so no lock can be taken",
		"update to Redis 6.0.6 or later, for a Cluster to 7.0 or later; or use Valkey",
		func(n *node) (bool, string) {
			version, least := n.field("redis_version"), leastVersion
			if n.config.Cluster {
				least = leastClusterVersion
			}
			return older(version, least), "version " + cmp.Or(n.info["valkey_version"], version)
		}),
	probe("redis.role", store.LevelFailure,
		"a replica refuses writes, or knows of a lock too late: two holders are possible",
		"use the address of the primary, or redis+sentinel:// or redis+cluster://; make the client without reading from replicas (SendToReplicas, ReplicaOnly)",
		func(n *node) (bool, string) {
			if n.ReadsReplicas {
				return true, "the client may read from replicas"
			}
			role := n.field("role")
			return role != "master", "role " + role
		}),
	probe("redis.loading", store.LevelFailure,
		"the server does not answer until it has read its data, and leases are lost meanwhile",
		"wait until the server has started; use a TTL that is longer than a restart takes",
		func(n *node) (bool, string) {
			if n.field("loading") != "0" {
				return true, "the server is reading its data, another " + n.info["loading_eta_seconds"] + " s"
			}
			return false, "the server has read its data"
		}),
	probe("redis.eviction", store.LevelFailure,
		"the server deletes locks when its memory is full, and two clients hold one name; volatile policies delete locks first, because locks have a TTL",
		"CONFIG SET maxmemory-policy noeviction, and in redis.conf; give locks a server of their own if a cache needs eviction",
		func(n *node) (bool, string) {
			limit, policy := n.count("maxmemory"), n.info["maxmemory_policy"]
			if limit == 0 {
				return false, "no maxmemory"
			}
			return policy != "noeviction", fmt.Sprintf("maxmemory %s with maxmemory-policy %s", size(limit), policy)
		}),
	probe("redis.evicted", store.LevelFailure,
		"the server has deleted keys to free memory; they may have been locks",
		"set maxmemory-policy to noeviction; CONFIG RESETSTAT sets the number to 0",
		none("evicted_keys", "keys evicted")),
	probe("redis.memory", store.LevelWarning,
		"at maxmemory new locks are refused; locks that are held can still be renewed and released",
		"raise maxmemory, or find out which keys need it: redis-cli --bigkeys",
		func(n *node) (bool, string) {
			limit, used := n.count("maxmemory"), n.count("used_memory")
			if limit == 0 {
				return false, size(used) + " used, no maxmemory"
			}
			return percent(used, limit) > most, fmt.Sprintf("%s of %s used, %d %%", size(used), size(limit), percent(used, limit))
		}),
	probe("redis.persistence", store.LevelWarning,
		"a restart loses all locks, and their names are given to others while the holders continue until their deadlines",
		"appendonly yes; or start the server only after the longest TTL is over",
		(*node).forgets),
	probe("redis.empty-restart", store.LevelFailure,
		"a primary that restarts without its data makes its replicas delete theirs: all locks are lost everywhere",
		"appendonly yes on the primary and the replicas; or never restart the primary automatically",
		ifSo((*node).hasReplicas, (*node).forgets)),
	probe("redis.fsync", store.LevelWarning,
		"a power cut loses the locks of the last half minute",
		"appendfsync always; everysec loses up to two seconds",
		ifSo((*node).hasAOF, setTo("appendfsync", "always", "everysec"))),
	probe("redis.fsync-on-rewrite", store.LevelWarning,
		"while the append-only file is rewritten nothing is synced to disk, so a power cut loses the locks of that time",
		"no-appendfsync-on-rewrite no",
		ifSo((*node).hasAOF, setTo("no-appendfsync-on-rewrite", "no"))),
	probe("redis.disk", store.LevelFailure,
		"the server could not write its data, so a restart loses locks; by default it refuses writes until it can",
		"see the log of the server; check the space and the permissions of its disk",
		func(n *node) (bool, string) {
			var failed []string
			for _, name := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
				if status := n.field(name); status != "ok" {
					failed = append(failed, name+" "+status)
				}
			}
			return len(failed) > 0, cmp.Or(strings.Join(failed, ", "), "the last writes to disk succeeded")
		}),
	probe("redis.uptime", store.LevelWarning,
		"the server has restarted lately; if it has lost data, clients that held locks before the restart may still believe that they hold them",
		"wait for one TTL after a restart without data",
		func(n *node) (bool, string) {
			up := time.Duration(n.count("uptime_in_seconds")) * time.Second
			return up < n.ttl, fmt.Sprintf("up for %v, the TTL is %v", up, n.ttl)
		}),
	probe("redis.replicas", store.LevelWarning,
		"replication is asynchronous: a failover may promote a replica that has not received a lock, and give the name to a second client",
		"replicas=N in the URL with the number of all replicas, which narrows the window, but no lock is granted while a replica is down; check tokens at the resource, which makes it harmless; or use etcd or ZooKeeper",
		func(n *node) (bool, string) {
			count := n.count("connected_slaves")
			if count == 0 {
				return false, "no replicas"
			}
			return int64(n.config.Replicas) < count, fmt.Sprintf("%d replicas, grants wait for %d of them", count, n.config.Replicas)
		}),
	probe("redis.min-replicas", store.LevelWarning,
		"a primary that is cut off from its replicas continues to grant locks while a promoted replica grants them too",
		"min-replicas-to-write 1 and min-replicas-max-lag below the TTL in seconds",
		ifSo((*node).hasReplicas, func(n *node) (bool, string) {
			least, lag := n.number("min-replicas-to-write"), n.number("min-replicas-max-lag")
			return least == 0 || lag == 0 || time.Duration(lag)*time.Second > n.ttl,
				fmt.Sprintf("min-replicas-to-write %d, min-replicas-max-lag %d", least, lag)
		})),
	probe("redis.cluster", store.LevelFailure,
		"names whose slots are not served cannot be locked, and their leases are lost",
		"redis-cli --cluster check HOST:PORT; bring back the primaries that are down, or promote their replicas",
		ifSo((*node).isCluster, func(n *node) (bool, string) {
			info, err := n.fields("CLUSTER", "INFO")
			n.fail(err)
			return info["cluster_state"] != "ok" || info["cluster_slots_ok"] != "16384",
				fmt.Sprintf("cluster_state %s, %s of 16384 slots", info["cluster_state"], info["cluster_slots_ok"])
		})),
	probe("redis.cluster-coverage", store.LevelNote,
		"if one slot is not served, the whole Cluster refuses all locks",
		"cluster-require-full-coverage no keeps the names of the other slots available",
		ifSo((*node).isCluster, setTo("cluster-require-full-coverage", "no"))),
	probe("redis.push-buffer", store.LevelWarning,
		"the server closes the connection of a client that is slow to read its wake-ups; its waiters then poll until they listen again",
		"client-output-buffer-limit pubsub 32mb 8mb 60, the default",
		func(n *node) (bool, string) {
			_, limits, _ := strings.Cut(n.setting("client-output-buffer-limit"), "pubsub ")
			words := strings.Fields(limits)
			if len(words) < 2 {
				n.fail(errRecord)
				return false, ""
			}
			hard, _ := strconv.ParseInt(words[0], 10, 64)
			soft, _ := strconv.ParseInt(words[1], 10, 64)
			return hard > 0 && hard < minPush || soft > 0 && soft < minPush, "client-output-buffer-limit pubsub " + limits
		}),
	probe("redis.idle-timeout", store.LevelWarning,
		"the server closes idle connections; the next lock has to connect first, and a call that was just sent fails",
		"timeout 0, and tcp-keepalive to find dead clients",
		setTo("timeout", "0")),
	probe("redis.clients", store.LevelWarning,
		"above maxclients the server refuses connections, and a program that must connect again loses its leases",
		"raise maxclients and the limit of open files, or use fewer connections",
		func(n *node) (bool, string) {
			clients, maxclients := n.count("connected_clients"), n.info["maxclients"]
			if maxclients == "" && n.err == nil { // before 7.0
				maxclients = n.setting("maxclients")
			}
			limit := n.parse(maxclients)
			return percent(clients, limit) > most, fmt.Sprintf("%d of %d connections", clients, limit)
		}),
	probe("redis.rejected", store.LevelWarning,
		"the server has refused connections because there were too many; programs may have lost leases",
		"raise maxclients; CONFIG RESETSTAT sets the number to 0",
		none("rejected_connections", "connections refused")),
	probe("redis.fork", store.LevelWarning,
		"the server is blocked while it forks to save its data, and renewals wait for it",
		"use a longer TTL, less memory, or a machine with faster page tables; disable snapshots if there is an append-only file",
		func(n *node) (bool, string) {
			took := time.Duration(n.count("latest_fork_usec")) * time.Microsecond
			return took > n.ttl/10, fmt.Sprintf("the last fork took %v", took)
		}),
	probe("redis.delayed-fsync", store.LevelWarning,
		"the disk is too slow: the server was blocked because the previous sync had not ended",
		"use a faster disk, or one that other programs do not use; CONFIG RESETSTAT sets the number to 0",
		ifSo((*node).hasAOF, none("aof_delayed_fsync", "syncs delayed"))),
	probe("redis.huge-pages", store.LevelWarning,
		"with transparent huge pages each write after a fork copies megabytes, and the server is blocked meanwhile",
		"disable-thp yes, or: echo never > /sys/kernel/mm/transparent_hugepage/enabled",
		setTo("disable-thp", "yes")),
	probe("redis.slow-commands", store.LevelWarning,
		"one command at a time is executed: renewals wait behind a slow one, and leases are lost",
		"see SLOWLOG GET; do without KEYS, and without large ranges and scripts, or give locks a server of their own; SLOWLOG RESET empties the log",
		(*node).slowCommands),
	probeFor(diagnosis.Identity, func(n *node) (bool, string) {
		return false, "replication ID " + n.field("master_replid")
	}),
}

// slowCommands reports commands of the last day that took more than a tenth of the TTL. It does
// not report their arguments, which may be secrets.
func (n *node) slowCommands() (bool, string) {
	v, err := n.do("SLOWLOG", "GET", "128")
	if n.fail(err); n.err != nil {
		return false, ""
	}
	now, err := n.clock()
	n.fail(err)
	count, worst := 0, time.Duration(0)
	for _, entry := range list(v) {
		e := list(entry)
		if len(e) < 3 || now.Sub(time.Unix(number(e[1]), 0)) > slowAge {
			continue
		}
		took := micros(e[2])
		worst = max(worst, took)
		if took > n.ttl/10 {
			count++
		}
	}
	if count == 0 {
		return false, fmt.Sprintf("no command of the slow log took more than a tenth of the TTL, the slowest %v", worst)
	}
	return true, fmt.Sprintf("%d commands of the last day took more than a tenth of the TTL, the slowest %v", count, worst)
}

// CommandRights returns the commands that a user of the store must be allowed to run.
func CommandRights(cluster, replicas bool) []string {
	names := strings.Fields("asking del eval evalsha get hdel hexists hget hset incrby lindex llen lpop lpos lrange lrem lset" +
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
