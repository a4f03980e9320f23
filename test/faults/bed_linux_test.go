package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/redisstore"
)

const (
	// limit bounds everything that must happen and has no other bound. It is far longer than any
	// of that takes on a busy machine.
	limit = 60 * time.Second

	// soon bounds events that must not wait for the end of a lease of longTTL.
	soon    = 20 * time.Second
	longTTL = time.Minute

	// shortTTL is short enough to wait for its end. Its margin of a twentieth must be longer than
	// the delay of a timer on a busy machine.
	shortTTL = 2 * time.Second
)

// A bed has the servers of one test.
type bed struct {
	t      testing.TB
	url    string
	nodes  []*servers.Redis
	group  *servers.SentinelGroup // nil if there are no Sentinels
	shards *servers.Cluster       // nil if it is not a Cluster
	etcd   *servers.EtcdCluster   // if set, there is no Redis
	prefix string                 // of the keys of etcd; empty if the servers are not shared
	zoo    *zoo                   // if set, there is no Redis
	mysql  *mysqlServer           // if set, there is no Redis
	pg     *pgBed                 // if set, there is no Redis
	file   string                 // of SQLite; if set, there is no Redis

	dialled sync.Map // maps a client to the function that closes its connection
}

func single(t testing.TB, opts servers.RedisOptions) *bed {
	t.Helper()
	r := servers.StartRedis(t, opts)
	return &bed{t: t, url: "redis://" + r.Addr(), nodes: []*servers.Redis{r}}
}

func sentinel(t testing.TB) *bed {
	t.Helper()
	g := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	url := "redis+sentinel://" + strings.Join(g.Addrs(), ",") + "/" + servers.SentinelName
	return &bed{t: t, url: url, nodes: g.Nodes, group: g}
}

func redisCluster(t testing.TB) *bed {
	t.Helper()
	c := servers.StartCluster(t, servers.RedisOptions{})
	return &bed{t: t, url: clusterURL(c), nodes: c.Nodes, shards: c}
}

func clusterURL(c *servers.Cluster) string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// short returns a TTL that is short enough to wait for its end, and long enough for renewals on
// a busy machine. On etcd a renewal takes more calls, and each may wait for an election.
func (b *bed) short() time.Duration {
	if b.etcd != nil {
		return 2 * shortTTL
	}
	return shortTTL
}

// on runs a test on a bed.
func on(t *testing.T, name string, start func(t testing.TB) *bed, test func(t *testing.T, b *bed)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, start(t))
	})
}

// onAll runs a test on all stores between processes but SQLite.
func onAll(t *testing.T, test func(t *testing.T, b *bed)) {
	on(t, "Redis", func(t testing.TB) *bed { return single(t, servers.RedisOptions{}) }, test)
	on(t, "Cluster", redisCluster, test)
	on(t, "Sentinel", sentinel, test)
	on(t, "quorum", func(t testing.TB) *bed { return quorumBed(t, 3, servers.RedisOptions{}) }, test)
	on(t, "etcd", etcd, test)
	on(t, "ZooKeeper", zookeeper, test)
	on(t, "MariaDB", mysqlShared, test)
	on(t, "PostgreSQL", postgres, test)
}

// primary returns the server that grants the lock "n".
func (b *bed) primary() *servers.Redis {
	b.t.Helper()
	switch {
	case b.group != nil:
		return b.group.Primary()
	case b.shards != nil:
		return b.shards.Primary(lockKey(b, "n"))
	}
	return b.nodes[0]
}

// lockKey returns the key of a lock.
func lockKey(b *bed, name string) string {
	if b.shards == nil {
		return rediscore.Prefix + "lock:" + name
	}
	return redistest.ClusterLockKey(name)
}

// open opens a client by its URL, as programs do.
func (b *bed) open(opts ...holdfast.Option) *holdfast.Client {
	b.t.Helper()
	return openURL(b.t, b.url, opts...)
}

func openURL(t testing.TB, url string, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := holdfast.Open(ctx, url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// close closes clients and their connections.
func (b *bed) close(clients ...*holdfast.Client) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
		if end, ok := b.dialled.Load(c); ok {
			end.(func())()
		}
	}
	return err
}

// wires are the proxies between one client and the servers.
type wires []*faultproxy.Proxy

// addrs returns the addresses of all servers.
func (b *bed) addrs() (list []string) {
	switch {
	case b.etcd != nil:
		return b.etcd.Addrs()
	case b.zoo != nil:
		return b.zoo.Addrs()
	case b.mysql != nil:
		return []string{b.mysql.Addr()}
	case b.pg != nil:
		return []string{b.pg.Addr()}
	}
	for _, node := range b.nodes {
		list = append(list, node.Addr())
	}
	if b.group != nil {
		list = append(list, b.group.Addrs()...)
	}
	return list
}

// behind starts a proxy in front of each server, and returns their URL.
func (b *bed) behind() (url string, w wires) {
	b.t.Helper()
	url = b.url
	for _, addr := range b.addrs() {
		p := faultproxy.Start(b.t, addr)
		w, url = append(w, p), strings.Replace(url, addr, p.Addr(), 1)
	}
	return url, w
}

// openBy opens a client with its own proxies, so that a fault affects no other client.
func (b *bed) openBy(opts ...holdfast.Option) (*holdfast.Client, wires) {
	b.t.Helper()
	url, w := b.behind()
	if b.group != nil || b.shards != nil {
		return b.dial(w, opts...), w
	}
	return openURL(b.t, url, opts...), w
}

// dial opens a client that uses proxies also for the addresses that Sentinels and nodes of a Cluster report.
func (b *bed) dial(w wires, opts ...holdfast.Option) *holdfast.Client {
	b.t.Helper()
	by := make(map[string]string)
	for i, addr := range b.addrs() {
		by[addr] = w[i].Addr()
	}
	// rueidis may open a connection while it is being closed, and leave it open.
	life, end := context.WithCancel(context.Background())
	option := rueidis.ClientOption{
		InitAddress:       []string{b.nodes[0].Addr()},
		DisableCache:      true,
		DisableRetry:      true,
		PipelineMultiplex: 1,
		ClientSetInfo:     rueidis.DisableClientSetInfo,
		DialCtxFn: func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", by[addr])
			if err == nil {
				context.AfterFunc(life, func() { conn.Close() })
			}
			return conn, err
		},
	}
	if b.group != nil {
		option.InitAddress = b.group.Addrs()
		option.Sentinel.MasterSet = servers.SentinelName
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := redisstore.New(client)
	if err != nil {
		b.t.Fatal(err)
	}
	c := suites.Client(b.t, s, opts...)
	b.dialled.Store(c, sync.OnceFunc(func() {
		s.Close()
		client.Close()
		end()
	}))
	b.t.Cleanup(func() { b.close(c) })
	return c
}

func (w wires) each(do func(*faultproxy.Proxy)) {
	for _, p := range w {
		do(p)
	}
}

func (w wires) hold() { w.each((*faultproxy.Proxy).Hold) }
func (w wires) cut()  { w.each((*faultproxy.Proxy).Cut) }
func (w wires) heal() { w.each((*faultproxy.Proxy).Heal) }

// holdRepliesAfter forwards the first request for a name, and holds the replies from then on. It
// returns a function that waits until the server has replied.
func (w wires) holdRepliesAfter(t testing.TB, name string) (answered func()) {
	t.Helper()
	seen := make(chan struct{})
	first := sync.OnceFunc(func() {
		w.each(func(p *faultproxy.Proxy) { p.ToClient.Hold() })
		close(seen)
	})
	w.each(func(p *faultproxy.Proxy) { p.ToServer.When(mentions(name), first) })
	return func() {
		t.Helper()
		select {
		case <-seen:
		case <-time.After(limit):
			t.Fatalf("no request for %q was seen", name)
		}
		eventually(t, "the server has answered", func() error {
			for _, p := range w {
				if p.ToClient.Waiting() > 0 {
					return nil
				}
			}
			return fmt.Errorf("no reply waits in the proxy")
		})
	}
}

// lose drops the connections together with the bytes that the proxies hold, and accepts new
// connections.
func (w wires) lose() {
	w.cut()
	w.heal()
}

// mentions matches requests that contain the key or the node of a lock.
func mentions(name string) func([]byte) bool {
	texts := [][]byte{
		[]byte("lock:" + name + "\r\n"), []byte("/lock/" + name + "\t"), []byte("/" + name + "/"),
		append([]byte{0, 0, 0, byte(len(name))}, name...), // an argument of PostgreSQL
	}
	texts = append(texts, mysqlMentions(name)...)
	return func(b []byte) bool {
		return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(b, text) })
	}
}

// eventually polls until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	within(t, limit, what, check)
}

func within(t testing.TB, most time.Duration, what string, check func() error) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(begin) > most {
			t.Fatalf("%s: not after %v: %v", what, most, err)
		}
	}
}

// queued waits until n clients are in the queue of a name.
func (b *bed) queued(c *holdfast.Client, name string, n int) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("%d wait for %q", n, name), func() error {
		ctx, cancel := context.WithTimeout(b.t.Context(), limit)
		defer cancel()
		info, err := c.Inspect(ctx, name)
		if err == nil && len(info.Waiters) != n {
			err = fmt.Errorf("%d wait", len(info.Waiters))
		}
		return err
	})
}

// warmUp ensures that the next request for a name needs a single round trip: the primary has the scripts,
// or the parent nodes exist.
func (b *bed) warmUp(c *holdfast.Client, name string) {
	b.t.Helper()
	for range 2 {
		lease := record(new(History)).must(b.t, c, name, longTTL, patient)
		check(b.t, lease.Renew(b.t.Context()))
		lease.mustUnlock(b.t)
	}
}

// clean checks K. It closes the clients and waits, for at most most, until no server has a
// connection of a client or a key other than the counter of tokens.
func (b *bed) clean(most time.Duration, clients ...*holdfast.Client) {
	b.t.Helper()
	check(b.t, b.close(clients...))
	within(b.t, most, "K: nothing is left on the servers", b.left)
}

// left returns an error that lists what clients have left on the servers.
func (b *bed) left() error {
	switch {
	case b.etcd != nil:
		return b.leftOnEtcd()
	case b.zoo != nil:
		return b.zoo.left()
	case b.mysql != nil:
		return b.mysql.left()
	case b.pg != nil:
		return b.pg.left()
	case b.file != "":
		return leftInFile(b.file)
	}
	for _, node := range b.nodes {
		if node.Running() {
			if err := left(node); err != nil {
				return err
			}
		}
	}
	return nil
}

// left returns an error that names the keys and connections that are left on a server.
func left(node *servers.Redis) error {
	value, err := node.Do("KEYS", "*")
	if err != nil {
		return err
	}
	keys := slices.DeleteFunc(value.([]any), func(key any) bool {
		return strings.HasSuffix(key.(string), ":token") || strings.HasSuffix(key.(string), ":holdfast:quorum:clients") // expires later
	})
	if len(keys) > 0 {
		return fmt.Errorf("keys on %s: %v", node.Addr(), keys)
	}
	if conns := connections(node); len(conns) > 0 {
		return fmt.Errorf("connections to %s:\n%s", node.Addr(), strings.Join(conns, "\n"))
	}
	return nil
}

// connections returns the connections of clients, except those of replicas, of Sentinels and of
// this query.
func connections(node *servers.Redis) (conns []string) {
	value, err := node.Do("CLIENT", "LIST")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(value.(string)) {
		fields := make(map[string]string)
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		switch {
		case strings.ContainsAny(fields["flags"], "SM"), strings.HasPrefix(fields["name"], "sentinel-"), strings.HasPrefix(fields["cmd"], "client|list"):
		default:
			conns = append(conns, strings.TrimSpace(line))
		}
	}
	return conns
}
