package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestAWriteWithALowerTokenIsRefused(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	for kind, addrs := range map[string][]string{"single": {server.Addr()}, "cluster": cluster.Addrs()} {
		t.Run(kind, func(t *testing.T) {
			client := newClient(t, rueidis.ClientOption{InitAddress: addrs})
			for _, key := range []string{"stock:1", "{user}:stock", "a{b", "42", "{42}"} {
				write := func(token int64, command ...string) (any, error) {
					return Fenced(t.Context(), client, key, token, command...)
				}
				if got, err := write(5, "INCRBY", "7"); err != nil || got != int64(7) {
					t.Fatalf("%s: %v, %v", key, got, err)
				}
				_, err := write(4, "SET", "stale")
				var stale *fence.StaleError
				if !errors.As(err, &stale) || stale.Token != 4 || stale.Highest != 5 {
					t.Errorf("a lower token: %v", err)
				}
				if got, err := write(5, "INCRBY", "1"); err != nil || got != int64(8) {
					t.Errorf("the same holder again: %v, %v", got, err)
				}
				must(t, errOf(write(6))) // a new holder raises the token before it reads
				want(t, "after a raise", errOf(write(5, "SET", "stale")), fence.ErrStale)
				if got, err := write(store.MaxToken, "GET"); err != nil || got != "8" {
					t.Errorf("%v, %v", got, err)
				}
				want(t, "one below the highest possible token", errOf(write(store.MaxToken-1, "SET", "stale")), fence.ErrStale)
			}
		})
	}
}

func TestAnInvalidFencedWriteIsRefused(t *testing.T) {
	for _, test := range []struct {
		key   string
		token int64
	}{{"a", 0}, {"a", -1}, {"a", store.MaxToken + 1}, {"", 1}, {"a}b", 1}, {"{}a", 1}} {
		want(t, fmt.Sprint(test), errOf(Fenced(t.Context(), nil, test.key, test.token, "SET", "x")), store.ErrInvalid)
	}
}

func TestAFencedScriptWritesSeveralKeysOrNone(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := newClient(t, rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	const script = `
		if tonumber(redis.call('GET', KEYS[1]) or 10) < tonumber(ARGV[1]) then
			return redis.error_reply('SOLD out')
		end
		redis.call('RPUSH', KEYS[2], ARGV[2])
		return redis.call('DECRBY', KEYS[1], ARGV[1]) -- a comment at the end`
	server.Must("SET", "{42}:stock", "10")
	order := func(token int64, n, id string) (any, error) {
		return FencedScript(t.Context(), client, token, script, []string{"{42}:stock", "{42}:orders"}, n, id)
	}
	if left, err := order(5, "3", "a"); err != nil || left != int64(7) {
		t.Fatalf("%v, %v, want 7 left", left, err)
	}
	want(t, "a lower token", errOf(order(4, "3", "b")), fence.ErrStale)
	if _, err := order(6, "8", "c"); err == nil || !strings.Contains(err.Error(), "SOLD out") {
		t.Errorf("%v, want the error that the script returned", err)
	}
	want(t, "a lower token for the same key", errOf(Fenced(t.Context(), client, "{42}:stock", 5, "SET", "0")), fence.ErrStale)
	orders := server.Must("LRANGE", "{42}:orders", "0", "-1").([]any)
	if stock := server.Must("GET", "{42}:stock"); stock != "7" || len(orders) != 1 || orders[0] != "a" {
		t.Errorf("stock %v and orders %v, want 7 and the first order", stock, orders)
	}
	if got, err := FencedScript(t.Context(), client, 7, "return 'first', 'second'", []string{"{42}:stock"}); err != nil || got != "first" {
		t.Errorf("a script that returns two values: %v, %v, want the first, as without a fence", got, err)
	}
	want(t, "no keys", errOf(FencedScript(t.Context(), client, 7, script, nil)), store.ErrInvalid)
}
