package rediscore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A clinic is a server that is set up in different ways, together with the findings so far.
type clinic struct {
	*servers.Redis
	t     testing.TB
	seen  *diagnosistest.Record
	admin *servers.RESPConn
	store *Store
}

func newClinic(t testing.TB, seen *diagnosistest.Record, opts servers.RedisOptions) *clinic {
	c := &clinic{Redis: servers.StartRedis(t, opts), t: t, seen: seen}
	var err error
	if c.admin, err = c.Dial(); err != nil { // before the server has too many clients
		t.Fatal(err)
	}
	t.Cleanup(func() { c.admin.Close() })
	c.store = open(t, c.Addr())
	return c
}

// in returns the clinic for a part of a test.
func (c *clinic) in(t testing.TB) *clinic {
	part := *c
	part.t = t
	return &part
}

// set runs commands, each of words that are separated by spaces. A word may be in quotes.
func (c *clinic) set(commands ...string) {
	c.t.Helper()
	for _, command := range commands {
		var args []string
		for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command, -1) {
			args = append(args, strings.Trim(word, `"`))
		}
		if _, err := c.admin.Do(args...); err != nil {
			c.t.Fatalf("%s: %v", command, err)
		}
	}
}

// want examines the server and compares the findings that are not OK.
func (c *clinic) want(ttl time.Duration, want ...string) {
	c.t.Helper()
	c.wantAt(c.store, ttl, want...)
}

func (c *clinic) wantAt(s *Store, ttl time.Duration, want ...string) {
	c.t.Helper()
	diagnosistest.Want(c.t, c.seen.Note(c.t, s.Diagnose(context.Background(), ttl)), want...)
}

// await waits until a field of INFO matches.
func (c *clinic) await(section, field, pattern string) {
	c.t.Helper()
	servers.Poll(c.t, 10*time.Second, func() error {
		info, err := c.Info(section)
		if err == nil && !regexp.MustCompile(pattern).MatchString(info[field]) {
			err = fmt.Errorf("%s is %q", field, info[field])
		}
		return err
	})
}

// several splits findings at commas.
func several(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ", ")
}

// ttl is longer than the server has been up, and much longer than a command takes.
const ttl = time.Second

// safe are the options of a server without findings.
var safe = servers.RedisOptions{Config: []string{"appendfsync always"}}

func TestDiagnoseFindsWhatIsSetUpWrongly(t *testing.T) {
	var seen diagnosistest.Record
	c := newClinic(t, &seen, safe)
	c.want(time.Hour, "redis.uptime warning")
	c.await("server", "uptime_in_seconds", "^[1-9]")
	c.want(ttl)

	for _, test := range []struct{ wrong, right, want string }{
		{"CONFIG SET appendfsync no", "CONFIG SET appendfsync always", "redis.fsync warning"},
		{"CONFIG SET no-appendfsync-on-rewrite yes", "CONFIG SET no-appendfsync-on-rewrite no", "redis.fsync-on-rewrite warning"},
		{"CONFIG SET timeout 60", "CONFIG SET timeout 0", "redis.idle-timeout warning"},
		{`CONFIG SET client-output-buffer-limit "pubsub 1000 500 60"`, `CONFIG SET client-output-buffer-limit "pubsub 0 0 0"`, "redis.push-buffer warning"},
		{"CONFIG SET maxmemory 1gb maxmemory-policy volatile-ttl", "CONFIG SET maxmemory 0", "redis.eviction failure"},
		{"CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru", "CONFIG SET maxmemory-policy noeviction", "redis.eviction failure"},
		{"DEBUG SLEEP 0.15", "SLOWLOG RESET", "redis.slow-commands warning"},
		{`CONFIG SET appendonly no`, `CONFIG SET save "3600 1"`, "redis.persistence warning"},
		{"CONFIG RESETSTAT", `CONFIG SET save "" appendonly yes`, ""}, // snapshots only are enough
	} {
		c.set(test.wrong)
		c.want(ttl, several(test.want)...)
		c.set(test.right)
	}
	c.await("persistence", "aof_rewrite_in_progress", "0")
	c.want(ttl)

	t.Run("memory", func(t *testing.T) {
		c := c.in(t)
		info, err := c.Info("memory")
		must(t, err)
		var used int64
		fmt.Sscan(info["used_memory"], &used)
		c.set(fmt.Sprintf("CONFIG SET maxmemory %d", used*11/10))
		c.want(ttl, "redis.memory warning")
		c.set("CONFIG SET maxmemory 0", "DEBUG POPULATE 5000 k 200", fmt.Sprintf("CONFIG SET maxmemory-policy allkeys-random maxmemory %d", used*11/10))
		c.await("stats", "evicted_keys", "^[1-9]")
		c.set("CONFIG SET maxmemory 0 maxmemory-policy noeviction")
		c.want(ttl, "redis.evicted failure")
		c.set("CONFIG RESETSTAT", "FLUSHALL")
		c.want(ttl)
	})

	t.Run("disk", func(t *testing.T) {
		c := c.in(t)
		obstacle := filepath.Join(c.DataDir(), "dump.rdb", "x")
		must(t, os.MkdirAll(obstacle, 0o700))
		c.set("BGSAVE")
		c.await("persistence", "rdb_last_bgsave_status", "err")
		c.want(ttl, "redis.disk failure")
		// No fork is fast enough for such a TTL.
		if f := diagnosistest.Find(t, c.seen.Note(t, c.store.Diagnose(t.Context(), time.Microsecond)), "redis.fork"); f.Level != store.LevelWarning {
			t.Errorf("%+v", f)
		}
		must(t, os.RemoveAll(filepath.Dir(obstacle)))
		c.set("BGSAVE", "SLOWLOG RESET")
		c.await("persistence", "rdb_last_bgsave_status", "ok")
		c.want(ttl)
	})

	t.Run("connections", func(t *testing.T) {
		c := c.in(t)
		c.set("CONFIG SET maxclients 10")
		var extra []*servers.RESPConn
		for range 12 {
			conn, err := c.Dial()
			if err == nil {
				conn.Do("PING")
				extra = append(extra, conn)
			}
		}
		c.want(ttl, "redis.clients warning", "redis.rejected warning")
		for _, conn := range extra {
			conn.Close()
		}
		c.set("CONFIG SET maxclients 1000", "CONFIG RESETSTAT")
		c.want(ttl)
	})

	t.Run("rights", func(t *testing.T) { diagnoseRights(t, c.in(t)) })
	t.Run("replies of other servers", func(t *testing.T) { diagnoseOthers(t, c.in(t)) })
	t.Run("replicas", func(t *testing.T) { diagnoseReplicas(t, c.in(t)) })
	seen.Complete(t, "redis.", "redis.cluster", "redis.cluster-coverage")
}

// diagnoseRights examines the server as users with fewer rights.
func diagnoseRights(t *testing.T, c *clinic) {
	c.set("ACL SETUSER few on >PASSWORD ~holdfast:* &holdfast:* -@all +evalsha +eval +ping +role +scan +time",
		"ACL SETUSER none on >PASSWORD ~holdfast:* &holdfast:* -@all +ping",
		"ACL SETUSER elsewhere on >PASSWORD ~other:* &other:* +@all")
	defer c.set("ACL DELUSER few none elsewhere")
	for user, says := range map[string]string{
		"few":       "DEL, GET, HDEL, ",
		"none":      "EVAL",
		"elsewhere": "PUBLISH",
	} {
		findings := c.seen.Note(t, openAs(t, c.Addr(), user, "PASSWORD", Config{}).Diagnose(t.Context(), ttl))
		f := diagnosistest.Find(t, findings, "redis.rights")
		if f.Level != store.LevelFailure || !strings.Contains(f.Found, says) {
			t.Errorf("user %s: %+v", user, f)
		}
		if strings.Contains(fmt.Sprint(findings), "PASSWORD") {
			t.Error("a password was printed")
		}
	}
	// Without these rights, everything that INFO, CONFIG and SLOWLOG return is unknown, and the
	// finding names the right.
	findings := openAs(t, c.Addr(), "few", "PASSWORD", Config{}).Diagnose(t.Context(), ttl)
	for id, right := range map[string]string{"redis.eviction": "allow INFO", "redis.idle-timeout": "allow CONFIG GET", "redis.slow-commands": "allow SLOWLOG GET"} {
		if f := diagnosistest.Find(t, findings, id); f.Level != store.LevelUnknown || !strings.Contains(f.Remedy, right) || !strings.Contains(f.Found, "NOPERM") {
			t.Errorf("%+v, want unknown and %q", f, right)
		}
	}
	for _, f := range findings {
		if f.Level == store.LevelOK && f.ID != "store.clock" && f.ID != "redis.answers" {
			t.Errorf("OK without the right to look: %+v", f)
		}
	}
}

// diagnoseOthers replaces replies of the server by those of an older server, or of one with
// problems.
func diagnoseOthers(t *testing.T, c *clinic) {
	for _, test := range []struct {
		cluster       bool
		from, to, say string
	}{
		{false, `redis_version:[0-9.]+`, "redis_version:6.0.5", "redis.version failure"},
		{false, `redis_version:[0-9.]+`, "redis_version:6.2.0", ""},
		{true, `redis_version:[0-9.]+`, "redis_version:6.2.0", "redis.cluster unknown, redis.cluster-coverage note, redis.version failure"},
		{false, "aof_delayed_fsync:0", "aof_delayed_fsync:7", "redis.delayed-fsync warning"},
		{false, "loading:0", "loading:1\r\nloading_eta_seconds:9", "redis.loading failure"},
		{false, "evicted_keys", "absent", "redis.evicted unknown"},
	} {
		edited := &editedConn{c.store.conn, test.from, test.to}
		s, err := New(edited, Config{Cluster: test.cluster})
		must(t, err)
		if info, _ := c.Do("INFO"); !regexp.MustCompile(test.from).MatchString(text(info)) {
			t.Fatalf("INFO has no %s", test.from)
		}
		c.wantAt(s, ttl, several(test.say)...)
	}
	s, err := New(&editedConn{c.store.conn, "master_replid:", "absent:"}, Config{})
	must(t, err)
	identity := diagnosistest.Find(t, s.Diagnose(t.Context(), ttl), diagnosis.Identity.ID)
	if identity.Level != store.LevelUnknown || !strings.Contains(identity.Found, "INFO of this server has no master_replid") {
		t.Errorf("%+v, want unknown, and the reason", identity)
	}
}

// An editedConn changes the replies of the server.
type editedConn struct {
	Conn
	from, to string // a pattern, and its replacement
}

func (e *editedConn) Servers(ctx context.Context) ([]Server, error) {
	all, err := e.Conn.Servers(ctx)
	for i := range all {
		do := all[i].Do
		all[i].Do = func(ctx context.Context, args ...string) (any, error) {
			v, err := do(ctx, args...)
			if s, ok := v.(string); ok {
				v = regexp.MustCompile(e.from).ReplaceAllString(s, e.to)
			}
			return v, err
		}
	}
	return all, err
}

// diagnoseReplicas gives the server a replica.
func diagnoseReplicas(t *testing.T, c *clinic) {
	replica := newClinic(t, c.seen, servers.RedisOptions{Config: []string{"appendfsync always", "disable-thp no", fmt.Sprintf("replicaof 127.0.0.1 %d", c.Port)}})
	c.await("replication", "slave0", "state=online")
	replica.want(time.Hour, "redis.huge-pages warning", "redis.role failure", "redis.uptime warning")
	c.want(ttl, "redis.min-replicas warning", "redis.replicas warning")
	c.set("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 5")
	c.want(ttl, "redis.min-replicas warning", "redis.replicas warning")
	c.set("CONFIG SET min-replicas-max-lag 1")
	c.want(ttl, "redis.replicas warning")
	c.wantAt(openAs(t, c.Addr(), "", "", Config{Replicas: 1}), ttl)
	c.set("CONFIG SET appendonly no")
	c.want(ttl, "redis.empty-restart failure", "redis.persistence warning", "redis.replicas warning")
	replica.Kill()
	replica.want(ttl, "redis.answers failure")
}

func TestDiagnoseAfterCloseIsUnknown(t *testing.T) {
	s := open(t, "127.0.0.1:1")
	s.Close()
	diagnosistest.Want(t, s.Diagnose(t.Context(), ttl), "redis.answers unknown")
}
