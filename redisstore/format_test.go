package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A later format has another letter, another type, or several elements.
func TestARecordOfALaterFormatIsRefusedAndLeftAlone(t *testing.T) {
	const key = rediscore.Prefix + "lock:" + suites.Newer
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	for what, write := range map[string][]string{
		"letter":   {"RPUSH", key, "T1\tsomething"},
		"type":     {"HSET", key, "format", "2"},
		"elements": {"RPUSH", key, "2", "something"},
	} {
		t.Run(what, func(t *testing.T) {
			server.Must("FLUSHALL")
			server.Must(write...)
			s := openQuick(t, "redis://"+server.Addr())
			defer s.Close()
			suites.UnknownFormat(t, s, func() []string { return []string{fmt.Sprint(server.Must("DUMP", key), server.Must("PTTL", key))} })
		})
	}
}

// A majority of the nodes has a record of a later format.
func TestAQuorumRefusesARecordOfALaterFormat(t *testing.T) {
	const key = rediscore.Prefix + "lock:" + suites.Newer
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{InMemory: true})
	for _, n := range nodes[:2] {
		n.Must("RPUSH", key, "T1\tsomething")
	}
	s := openQuick3(t, quorumURL(nodes))
	defer s.Close()
	ctx := suites.Limited(t)
	_, acquired := s.Acquire(ctx, suites.Request(suites.Newer))
	_, listed := s.List(ctx, store.Query{Name: suites.Newer})
	for what, err := range map[string]error{"Acquire": acquired, "List": listed, "Break": s.Break(ctx, suites.Newer, store.NewID())} {
		if err == nil || !strings.Contains(err.Error(), suites.Newer) || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%s: %v; want an error that has the name and says what to do", what, err)
		}
	}
	for _, n := range nodes[:2] {
		if got := fmt.Sprint(n.Must("LRANGE", key, "0", "-1")); got != "[T1\tsomething]" {
			t.Errorf("the record has changed to %q", got)
		}
	}
}
