package faults

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A counter is a resource in memory that checks tokens.
type counter struct {
	gate fence.Gate

	mu    sync.Mutex
	value int64
	log   []Write
}

// read is the first half of an update. After it, lower tokens are refused.
func (c *counter) read(token int64) (int64, error) {
	if err := c.gate.Raise(token); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, nil
}

// write is the second half of an update.
func (c *counter) write(token, read int64) error {
	return c.gate.Do(token, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.value = read + 1
		c.log = append(c.log, Write{Token: token, Read: read, Value: c.value})
		return nil
	})
}

func (c *counter) add(token int64) error {
	read, err := c.read(token)
	if err == nil {
		err = c.write(token, read)
	}
	return err
}

func (c *counter) updates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.log)
}

// check checks R.
func (c *counter) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(c.log)) != c.value {
		return fmt.Errorf("resource: %d updates were accepted, the counter is %d", len(c.log), c.value)
	}
	return CheckLog(c.log)
}

// A shared is a resource for many processes: a separate Redis, with scripts that check tokens.
// It keeps a log of the last writes, and records lost updates.
type shared struct {
	conn *servers.RESPConn
}

func dialShared(addr string) (*shared, error) {
	conn, err := servers.DialRESP(addr, nil, "", "")
	if err != nil {
		return nil, err
	}
	return &shared{conn}, nil
}

const (
	raiseScript = `
		local highest = tonumber(redis.call('GET', KEYS[1] .. ':token') or 0)
		if tonumber(ARGV[1]) < highest then return 'stale' end
		redis.call('SET', KEYS[1] .. ':token', ARGV[1])
		return redis.call('GET', KEYS[1]) or '0'`

	writeScript = `
		local highest = tonumber(redis.call('GET', KEYS[1] .. ':token') or 0)
		if tonumber(ARGV[1]) < highest then return 'stale' end
		redis.call('SET', KEYS[1] .. ':token', ARGV[1])
		if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[2] then
			redis.call('RPUSH', 'lost', KEYS[1] .. ' token ' .. ARGV[1] .. ' read ' .. ARGV[2])
		end
		redis.call('SET', KEYS[1], ARGV[2] + 1)
		redis.call('RPUSH', KEYS[1] .. ':log', ARGV[1] .. ' ' .. ARGV[2])
		redis.call('LTRIM', KEYS[1] .. ':log', -10000, -1)
		return 'ok'`
)

func (s *shared) read(name string, token int64) (int64, error) {
	v, err := s.conn.Do("EVAL", raiseScript, "1", name, strconv.FormatInt(token, 10))
	if err != nil {
		return 0, err
	}
	if v == "stale" {
		return 0, fence.ErrStale
	}
	return strconv.ParseInt(v.(string), 10, 64)
}

func (s *shared) write(name string, token, read int64) error {
	v, err := s.conn.Do("EVAL", writeScript, "1", name, strconv.FormatInt(token, 10), strconv.FormatInt(read, 10))
	if err == nil && v == "stale" {
		return fence.ErrStale
	}
	return err
}

// startShared starts the Redis server of a resource.
func startShared(t testing.TB) *servers.Redis {
	t.Helper()
	return servers.StartRedis(t, servers.RedisOptions{InMemory: true})
}

// checkShared checks R. Accepted is the number of writes per name that were accepted for certain,
// and unsure is the number of writes with an unknown outcome.
func checkShared(r *servers.Redis, accepted, unsure map[string]int64) error {
	lost, err := r.Do("LRANGE", "lost", "0", "9")
	if err != nil {
		return err
	}
	if list := lost.([]any); len(list) > 0 {
		return fmt.Errorf("resource: updates were lost: %v", list)
	}
	for name, n := range accepted {
		v, err := r.Do("GET", name)
		if err != nil {
			return err
		}
		text, _ := v.(string)
		value, _ := strconv.ParseInt(text, 10, 64)
		if value < n || value > n+unsure[name] {
			return fmt.Errorf("resource: %q is %d after %d updates that were accepted and %d that may have been", name, value, n, unsure[name])
		}
		v, err = r.Do("LRANGE", name+":log", "0", "-1")
		if err != nil {
			return err
		}
		var log []Write
		for _, entry := range v.([]any) {
			a, b, _ := strings.Cut(entry.(string), " ")
			token, _ := strconv.ParseInt(a, 10, 64)
			read, _ := strconv.ParseInt(b, 10, 64)
			log = append(log, Write{Token: token, Read: read, Value: read + 1})
		}
		if err := CheckLog(log); err != nil {
			return err
		}
	}
	return nil
}

// grantedTwice takes a lock, and takes it again after fault has ended the grant on the server. It
// shows that the lease of the first holder is still valid for that holder, and that the resource
// refuses its write.
func grantedTwice(t *testing.T, h *History, resource *counter, client *holdfast.Client, ttl time.Duration, fault func() (other *holdfast.Client)) (old, next *held) {
	t.Helper()
	old = record(h).must(t, client, "n", ttl)
	read, err := resource.read(old.Token())
	check(t, err)
	next = record(h).must(t, fault(), "n", ttl)
	if !old.believes() {
		t.Errorf("the second grant was not shown: the first holder knows already: %v", old.Err())
	}
	check(t, resource.add(next.Token()))
	if err := resource.write(old.Token(), read); !errors.Is(err, fence.ErrStale) {
		t.Errorf("resource: want the write of the stale holder refused, got %v", err)
	}
	return old, next
}
