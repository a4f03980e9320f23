package rediscore

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// Prefix is the prefix of all keys and channels.
const Prefix = "holdfast:"

// clusterTags is the number of groups of names on a Cluster. A group is a hash tag: all its keys are in one
// slot, so that its names share a counter of tokens and a channel.
const clusterTags = 1024

// group returns the prefix of the keys and of the channel of a name.
func (s *Store) group(name string) string {
	if !s.config.Cluster {
		return Prefix
	}
	return Prefix + "{" + strconv.Itoa(hash(name, clusterTags)) + "}:"
}

// hash returns a number below n.
func hash(name string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(n))
}

// QuorumCounters is how many counters of tokens a node of a quorum has: so many that two clients rarely share
// one. If they do, and reach the nodes in different orders, their requests need a second round.
const QuorumCounters = 1024

// JoinQuorum makes the server a node of a quorum. It must be called before other methods.
func (s *Store) JoinQuorum() { s.config.Counters = QuorumCounters }

// counter returns the key of the counter of tokens: see also tokens.lua.
func (s *Store) counter(name string) string {
	if n := s.counterOf(name); n > 0 {
		return s.group(name) + strconv.Itoa(n) + ":token"
	}
	return s.group(name) + "token"
}

// counterOf returns the number of the counter of a name, from 1, or 0 if there is one counter.
func (s *Store) counterOf(name string) int {
	if s.config.Counters <= 1 {
		return 0
	}
	return 1 + hash(name, s.config.Counters)
}

func (s *Store) lockKey(name string) string { return s.group(name) + "lock:" + name }

// keys returns the keys of the complete scripts: see name.lua.
func (s *Store) keys(name string) []string {
	g := s.group(name)
	return []string{s.counter(name), g + "lock:" + name, g + "records:" + name, g + "ends:" + name, g + "queue:" + name}
}

// nameOf returns the name that the key of a lock belongs to.
func (s *Store) nameOf(lockKey string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(lockKey, Prefix)
	if ok && s.config.Cluster {
		_, rest, ok = strings.Cut(rest, "}:")
	}
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, "lock:")
}

var escapeGlob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `-`, `\-`)

// pattern matches the locks whose names begin with a prefix.
func (s *Store) pattern(prefix string) string {
	locks := "lock:" + escapeGlob.Replace(prefix) + "*"
	if s.config.Cluster {
		return Prefix + "{*}:" + locks
	}
	return Prefix + locks
}
