package redis

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// Prefix is what all keys and channels begin with.
const Prefix = "holdfast:"

// clusterTags is over how many groups a Cluster's names are spread. All keys of a group are
// in one slot, so that its names can share a counter of tokens: as many counters as this,
// however many names.
const clusterTags = 1024

// keys tells where things are. On a Cluster there is a tag in each key, which decides about
// its slot.
type keys struct {
	tags     []string // "" only, or "{0}:" and so on
	counters int      // of tokens in each group
}

func newKeys(cluster bool, counters int) keys {
	if !cluster {
		return keys{[]string{""}, counters}
	}
	k := keys{make([]string, clusterTags), counters}
	for i := range k.tags {
		k.tags[i] = "{" + strconv.Itoa(i) + "}:"
	}
	return k
}

// group is the group that a name belongs to.
func (k *keys) group(name string) int {
	if len(k.tags) == 1 {
		return 0
	}
	return hash(name, len(k.tags))
}

// hash returns a number below n.
func hash(name string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(n))
}

func (k *keys) lock(group int, name string) string { return Prefix + k.tags[group] + "lock:" + name }

func (k *keys) counter(group int, name string) string {
	if k.counters > 1 {
		return Prefix + k.tags[group] + strconv.Itoa(hash(name, k.counters)) + ":token"
	}
	return Prefix + k.tags[group] + "token"
}

func (k *keys) channel(group int, handle string) string {
	return Prefix + k.tags[group] + "wake:" + handle
}

// all are the keys of the scripts that see the whole name: see name.lua.
func (k *keys) all(group int, name string) []string {
	p := Prefix + k.tags[group]
	return []string{k.counter(group, name), p + "lock:" + name, p + "records:" + name, p + "ends:" + name, p + "queue:" + name}
}

// name is the name that the key of a lock belongs to.
func (k *keys) name(lock string) (string, bool) {
	rest, ok := strings.CutPrefix(lock, Prefix)
	if ok && len(k.tags) > 1 {
		_, rest, ok = strings.Cut(rest, "}:")
	}
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, "lock:")
}

// pattern matches the locks whose names begin with a prefix.
func (k *keys) pattern(prefix string) string {
	tag := ""
	if len(k.tags) > 1 {
		tag = "{*}:"
	}
	return Prefix + tag + "lock:" + escapeGlob(prefix) + "*"
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `-`, `\-`).Replace(s)
}

// LockKey is the key of a name's lock. It is for tests.
func (s *Store) LockKey(name string) string { return s.keys.lock(s.keys.group(name), name) }
