package redisstore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

var random = regexp.MustCompile(`wake:[A-Z2-7]{26}\t\d+`)

func TestFormats(t *testing.T) {
	t.Parallel()
	suites.Formats(t, func(t *testing.T) suites.FormatServer {
		server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
		return suites.FormatServer{
			Open: func(t testing.TB) store.Store {
				s, err := store.Open(t.Context(), "redis://"+server.Addr())
				must(t, err)
				return s
			},
			Dump: func(t testing.TB) (lines []string) { return commandsOf(server) },
			Load: func(t testing.TB, lines []string) {
				for _, line := range lines {
					server.Must(suites.UnquoteFields(t, line)...)
				}
			},
		}
	})
}

// commandsOf returns commands that write the contents of a server.
func commandsOf(server *servers.Redis) (lines []string) {
	ask := func(args ...string) (list []string) {
		for _, v := range server.Must(args...).([]any) {
			list = append(list, random.ReplaceAllString(fmt.Sprint(v), "wake:CHANNEL\t1"))
		}
		return list
	}
	keys := ask("KEYS", "*")
	slices.Sort(keys)
	for _, key := range keys {
		switch server.Must("TYPE", key) {
		case "string":
			lines = append(lines, suites.QuoteFields("SET", key, fmt.Sprint(server.Must("GET", key))))
		case "list":
			lines = append(lines, suites.QuoteFields(append([]string{"RPUSH", key}, ask("LRANGE", key, "0", "-1")...)...))
		case "hash":
			fields := ask("HKEYS", key)
			slices.Sort(fields)
			for _, field := range fields {
				lines = append(lines, suites.QuoteFields("HSET", key, field, ask("HMGET", key, field)[0]))
			}
		case "zset":
			members := ask("ZRANGE", key, "0", "-1", "WITHSCORES")
			for i := 0; i < len(members); i += 2 {
				lines = append(lines, suites.QuoteFields("ZADD", key, members[i+1], members[i]))
			}
		}
		if left := server.Must("PTTL", key).(int64); left > 0 {
			lines = append(lines, suites.QuoteFields("PEXPIREAT", key, fmt.Sprint(time.Now().UnixMilli()+left)))
		}
	}
	return lines
}
