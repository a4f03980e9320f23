package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/sqlitestore"
)

// huntBeds has a function per store that starts its servers and lists its faults.
var huntBeds = map[string]func(h *hunt){
	"sqlite": huntSQLite, "redis": huntRedis, "quorum": huntQuorum, "pg": huntPostgres, "mysql": huntMySQL,
	"etcd": huntEtcd, "zk": huntZooKeeper, "sentinel": huntSentinel, "cluster": huntCluster,
}

func huntStores() []string {
	return append(slices.Sorted(maps.Keys(huntBeds)), slices.Sorted(maps.Keys(peers))...)
}

const (
	clockSet = "the server's clock is set"
	dataLost = "data of the server is lost"
	replaced = "an asynchronous replica takes over"
	returned = "a leader that was suspended ends leases when it continues"
)

func huntSQLite(h *hunt) {
	dir := h.t.TempDir()
	small := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m") == nil // only root may do that
	if small {
		h.t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	}
	h.bed = &bed{t: h.t, file: filepath.Join(dir, "locks.db")}
	h.bed.url = "sqlite:" + h.bed.file
	h.bed.close(h.bed.open()) // creates the file
	db := h.openDB("sqlite", h.bed.file)
	h.result.Server = "SQLite " + oneValue(h, db, "SELECT sqlite_version()")
	h.connect()
	h.troubles = append(h.clientTroubles(),
		trouble{kind: "long snapshot", spares: true, do: inTransaction(h, db, "BEGIN", "SELECT count(*) FROM names")},
		trouble{kind: "file locked", do: inTransaction(h, db, "BEGIN IMMEDIATE", "SELECT 1")})
	if small {
		h.troubles = append(h.troubles, trouble{kind: "disk full", do: func(d time.Duration, _ int) { fillDisk(h, dir, d) }})
	}
}

// openDB opens a database in which the test causes faults.
func (h *hunt) openDB(driver, source string) *sql.DB {
	h.t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(0) // the server may have been restarted
	return db
}

// fillDisk fills the file system of a folder for a time.
func fillDisk(h *hunt, dir string, d time.Duration) {
	file, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		h.t.Errorf("fill the disk: %v", err)
		return
	}
	for part := make([]byte, 4096); err == nil; {
		_, err = file.Write(part)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		h.t.Errorf("fill the disk: %v", err)
	}
	time.Sleep(d)
	file.Close()
	os.Remove(file.Name())
}

// leftInFile returns an error that lists the rows of locks that are left.
func leftInFile(file string) error {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, table := range []string{"names", "holders", "waiters"} {
		var n int
		if err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d rows are left in %s: %w", n, table, err)
		}
	}
	return nil
}

// inTransaction runs a query and keeps its transaction open for a time.
func inTransaction(h *hunt, db *sql.DB, begin, query string) func(time.Duration, int) {
	return func(d time.Duration, _ int) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		conn, err := db.Conn(ctx)
		if err == nil {
			defer conn.Close()
			_, err = conn.ExecContext(ctx, begin)
			for end := time.Now().Add(soon); err != nil && strings.Contains(err.Error(), "locked") && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
				_, err = conn.ExecContext(ctx, begin)
			}
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, query)
			time.Sleep(d)
			conn.ExecContext(ctx, "ROLLBACK")
		}
		if err != nil {
			h.t.Errorf("%s: %v", query, err)
		}
	}
}

// again returns a fault that is caused again and again for a time.
func again(every time.Duration, do func()) func(time.Duration, int) {
	return func(d time.Duration, _ int) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(every, time.Until(end))) {
			do()
		}
	}
}

func oneValue(h *hunt, db *sql.DB, query string) (text string) {
	if err := db.QueryRowContext(context.Background(), query).Scan(&text); err != nil {
		h.t.Fatal(err)
	}
	return text
}

func huntRedis(h *hunt) {
	clock, opts := newClock(h.t)
	h.clock, h.bed = clock, single(h.t, opts)
	r := h.bed.nodes[0]
	h.redisVersion()
	h.requests, h.asks = h.redisRequests, redisAsks
	h.connect()
	h.troubles = slices.Concat(h.clientTroubles(), serverTroubles(r.Process), h.redisTroubles(r))
	// After a clock was set back, a loss of data may repeat tokens. That is documented, so a hunt
	// does only one of them.
	if h.result.Seed%2 == 0 {
		h.troubles = append(h.troubles, trouble{kind: "data lost", weak: dataLost, after: 2 * keptTTL, do: func(time.Duration, int) { r.Wipe() }})
	} else {
		h.troubles = append(h.troubles, h.clockTroubles(clockSet)...)
	}
}

func (h *hunt) redisVersion() {
	info, _ := h.bed.nodes[0].Info("server")
	h.result.Server = "Redis " + info["redis_version"]
}

func (h *hunt) redisTroubles(nodes ...*servers.Redis) []trouble {
	each := func(args ...string) {
		for _, node := range nodes {
			node.Do(args...)
		}
	}
	return []trouble{
		{kind: "scripts flushed", spares: true, do: again(20*time.Millisecond, func() { each("SCRIPT", "FLUSH") })},
		{kind: "sessions killed", do: again(100*time.Millisecond, func() {
			for _, node := range nodes {
				killConnections(node)
			}
		})},
		{kind: "memory full", do: func(d time.Duration, _ int) {
			each("CONFIG", "SET", "maxmemory", "1")
			time.Sleep(d)
			each("CONFIG", "SET", "maxmemory", "0")
		}},
	}
}

func huntQuorum(h *hunt) {
	clock, opts := newClock(h.t)
	nodes := append(servers.StartRedisNodes(h.t, 2, servers.RedisOptions{}), servers.StartRedis(h.t, opts))
	h.clock, h.bed = clock, quorumOf(h.t, nodes, "off")
	h.redisVersion()
	h.connect()
	h.troubles = slices.Concat(h.clientTroubles(), h.redisTroubles(nodes...), h.clockTroubles(""),
		memberTroubles(h, nodes, true, func(k int) { nodes[k].Restart() }, func() {}))
}

func huntPostgres(h *hunt) {
	clock, opts := newClock(h.t)
	h.clock, h.bed = clock, postgresOn(h.t, servers.StartPostgres(h.t, servers.PostgresOptions{NoSync: true, Env: opts.Env, Config: []string{"max_connections=300"}}))
	p := h.bed.pg
	h.requests, h.asks = h.pgRequests, pgAsks
	h.connect()
	db := h.openDB("pgx", "postgres://postgres@"+p.Addr()+"/postgres")
	version, _, _ := strings.Cut(oneValue(h, db, "SHOW server_version"), " ")
	h.result.Server = "PostgreSQL " + version
	h.troubles = slices.Concat(h.clientTroubles(), serverTroubles(p.Process), h.clockTroubles(clockSet),
		h.tableTroubles(db, p.schema+".names", p.killSessions, "BEGIN ISOLATION LEVEL REPEATABLE READ"))
}

func huntMySQL(h *hunt) {
	clock, opts := newClock(h.t)
	h.clock, h.bed = clock, mysqlBed(h.t, servers.StartMariaDB(h.t, servers.MariaDBOptions{Env: opts.Env, Config: []string{"--max-connections=500"}}))
	m := h.bed.mysql
	h.connect()
	db := h.openDB("mysql", m.DSN())
	version, _, _ := strings.Cut(oneValue(h, db, "SELECT version()"), "-")
	h.result.Server = "MariaDB " + version
	h.troubles = slices.Concat(h.clientTroubles(), serverTroubles(m.Process), h.clockTroubles(clockSet),
		h.tableTroubles(db, m.database+".holdfast_names", m.killSessions, "START TRANSACTION WITH CONSISTENT SNAPSHOT"))
}

// tableTroubles are the faults of a server whose table has a row per name. Snapshot begins a transaction that keeps
// old rows.
func (h *hunt) tableTroubles(db *sql.DB, table string, killSessions func(), snapshot string) []trouble {
	h.lockRows = func(list ...string) func(time.Duration, int) {
		return inTransaction(h, db, "BEGIN", "SELECT name FROM "+table+" WHERE name IN ('"+strings.Join(list, "', '")+"') FOR UPDATE")
	}
	h.rows = func(prefix string) string {
		return oneValue(h, db, "SELECT count(*) FROM "+table+" WHERE name LIKE '"+prefix+"%'")
	}
	return []trouble{
		{kind: "sessions killed", do: again(100*time.Millisecond, killSessions)},
		{kind: "row locked", name: "n0", do: h.lockRows("n0")},
		{kind: "long snapshot", spares: true, do: inTransaction(h, db, snapshot, "SELECT count(*) FROM "+table)},
	}
}

func huntEtcd(h *hunt) {
	h.bed = etcdOn(h.t, servers.StartEtcdCluster(h.t, 3, unhurried))
	c := h.bed.etcd
	var status struct{ Version string }
	if err := c.Nodes[0].Ask("/v3/maintenance/status", map[string]any{}, &status); err != nil {
		h.t.Fatal(err)
	}
	h.result.Server = "etcd " + status.Version
	h.connect()
	h.troubles = append(h.clientTroubles(), memberTroubles(h, c.Nodes, false, func(k int) { c.Nodes[k].Restart() }, func() { c.Leader() })...)
	for i := range h.troubles {
		if tr := &h.troubles[i]; tr.kind == "member stopped" { // for longer than an election takes
			tr.weak, tr.long, tr.after = returned, time.Second, huntTTL
		}
	}
}

func huntZooKeeper(h *hunt) {
	// The servers remove the containers that killed processes leave behind.
	tidy := servers.ZooKeeperOptions{Java: []string{"-Dznode.container.checkIntervalMs=1000"}}
	h.bed = zooBed(h.t, servers.StartZooKeeperEnsemble(h.t, 3, tidy), zooSession)
	z := h.bed.zoo
	stats, err := z.Nodes[0].Stats()
	if err != nil {
		h.t.Fatal(err)
	}
	version, _, _ := strings.Cut(stats["zk_version"], "-")
	h.result.Server = "ZooKeeper " + version
	h.connect()
	await := func() {
		z.Leader()
		servers.Poll(h.t, limit, func() error {
			if n := len(z.Followers()); n < 2 {
				return fmt.Errorf("%d followers", n)
			}
			return nil
		})
	}
	h.troubles = append(h.clientTroubles(), memberTroubles(h, z.Nodes, false, func(k int) { z.Restart(z.Nodes[k]) }, await)...)
}

func huntSentinel(h *hunt) {
	h.bed = sentinel(h.t)
	h.redisVersion()
	h.connect()
	g := h.bed.group
	h.troubles = slices.Concat(h.clientTroubles(), h.redisTroubles(h.bed.nodes...), []trouble{
		{kind: "failover", weak: replaced, after: 2 * keptTTL, do: func(time.Duration, int) { failOver(h.bed) }},
		{kind: "primary restarted", weak: replaced, after: 2 * keptTTL, do: func(time.Duration, int) {
			old := g.Primary()
			old.Kill()
			g.AwaitFailover(old)
			old.Restart()
			g.AwaitReplicas()
			g.AwaitSentinels()
		}},
	})
}

// electionsApart is the time between two planned failovers to the same node. If it is shorter than four node
// timeouts, Redis 7.0 promotes the node at once with the votes of the first time, while the other one is still
// the primary. Then both accept writes: see the documentation of package redisstore.
const electionsApart = 4500 * time.Millisecond

func huntCluster(h *hunt) {
	h.bed = redisCluster(h.t)
	h.redisVersion()
	h.connect()
	c, elected := h.bed.shards, make(map[*servers.Redis]time.Time)
	h.troubles = slices.Concat(h.clientTroubles(), h.redisTroubles(h.bed.nodes...), []trouble{
		{kind: "planned failover", do: func(_ time.Duration, i int) {
			var key string
			var old, next *servers.Redis
			for next == nil || time.Since(elected[next]) < electionsApart {
				key = lockKey(h.bed, fmt.Sprint("n", i))
				old = c.Primary(key)
				next = c.Nodes[(slices.Index(c.Nodes, old)+3)%6]
				i++ // another shard, perhaps
				time.Sleep(time.Millisecond)
			}
			elected[next] = time.Now()
			next.Do("CLUSTER", "FAILOVER") // a replica that does not follow refuses
			for begin := time.Now(); c.Primary(key) == old && time.Since(begin) < 2*time.Second; {
				time.Sleep(10 * time.Millisecond)
			}
			c.AwaitOK()
		}},
		{kind: "primary restarted", weak: replaced, after: 2 * keptTTL, do: func(_ time.Duration, i int) {
			c.Primary(lockKey(h.bed, fmt.Sprint("n", i))).Restart()
			c.AwaitOK()
		}},
		{kind: "slot moved", name: "n0", do: func(d time.Duration, _ int) {
			_, finish := c.MoveSlot(lockKey(h.bed, "n0"))
			time.Sleep(d)
			finish()
		}},
		{kind: "addresses moved", weak: replaced, after: 2 * keptTTL, do: func(_ time.Duration, i int) {
			c.Move(time.Second, c.Primary(lockKey(h.bed, fmt.Sprint("n", i))))
			c.AwaitOK()
			h.bed.url = clusterURL(c) // of processes that start later: every server may have moved by then
			h.urls = slices.Repeat([]string{h.bed.url}, len(h.urls))
		}},
	})
}
