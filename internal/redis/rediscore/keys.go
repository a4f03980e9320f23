package rediscore

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// Prefix is the prefix of all keys and channels.
const Prefix = "holdfast:"

// clusterTags is the number of groups over which the names of a Cluster are spread. A group is a
// hash tag: all its keys are in one slot, so that its names share a counter of tokens and a
// channel.
const clusterTags = 1024

// group returns the prefix of the keys and of the channel of a name.
func (s *Store) group(name string) string {
	if !s.config.Cluster {
		return Prefix
	}
	return Prefix + "{" + strconv.Itoa(hash(name, clusterTags)) + "}:"
}

// hash returns the hash of a name, reduced to a number below n.
func hash(name string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(n))
}

// QuorumCounters is how many counters of tokens a node of a quorum has. Requests of two clients for
// different names need a second round if they share a counter and reach the nodes in different orders.
// With many counters that is rare.
const QuorumCounters = 1024

// JoinQuorum makes the server a node of a quorum. It must be called before other methods.
func (s *Store) JoinQuorum() { s.config.Counters = QuorumCounters }

// counter returns the key of the counter of tokens: see also tokens.lua.
func (s *Store) counter(name string) string {
	if s.config.Counters > 1 {
		return s.group(name) + strconv.Itoa(s.counterOf(name)) + ":token"
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
	tag := ""
	if s.config.Cluster {
		tag = "{*}:"
	}
	return Prefix + tag + "lock:" + escapeGlob.Replace(prefix) + "*"
}
