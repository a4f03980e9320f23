package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

const (
	SentinelName = "primary"        // under which the Sentinels watch the primary
	settleLimit  = 30 * time.Second // bounds the wait until servers have discovered each other
)

// A SentinelGroup is a primary, replicas, and Sentinels that promote one 0.5 s after the primary is gone.
type SentinelGroup struct {
	group[*Redis] // the first one starts as primary
	Sentinels     []*Redis
}

// StartSentinel starts servers that know each other. The options are those of the primary and the replicas;
// Sentinels share their TLS and have no password.
func StartSentinel(t testing.TB, replicas, sentinels int, opts RedisOptions) *SentinelGroup {
	t.Helper()
	primary := newRedis(t, opts)
	g := &SentinelGroup{group: group[*Redis]{[]*Redis{primary}, t}}
	for range replicas {
		g.Nodes = append(g.Nodes, newRedis(t, opts, fmt.Sprintf("replicaof 127.0.0.1 %d", primary.Port)))
	}
	startAll(g.Nodes...)
	// Sentinels rarely look for replicas, so the replicas should be connected from the start.
	Poll(t, settleLimit, func() error { return hasReplicas(primary, replicas) })
	for range sentinels {
		g.Sentinels = append(g.Sentinels, newSentinel(t, primary, sentinels/2+1))
	}
	startAll(g.Sentinels...)
	g.AwaitSentinels()
	return g
}

// newSentinel prepares a Sentinel. A Sentinel rewrites its configuration, so the configuration
// is its data: a Restart keeps it, and a Wipe writes the initial one again.
func newSentinel(t testing.TB, primary *Redis, quorum int) *Redis {
	t.Helper()
	s := &Redis{Process: newProcess(t), opts: RedisOptions{TLS: primary.opts.TLS, Env: primary.opts.Env}}
	const file = "sentinel.conf"
	s.prepare(program{
		binary: "redis-server",
		args:   []string{file, "--sentinel"},
		env:    s.opts.Env,
		ready:  s.hurry,
		init: func(data string) {
			config := append(s.commonConfig(),
				"dir "+strconv.Quote(data),
				fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", SentinelName, primary.Port, quorum),
				fmt.Sprintf("sentinel down-after-milliseconds %s 500", SentinelName),
				fmt.Sprintf("sentinel failover-timeout %s 2000", SentinelName),
				fmt.Sprintf("sentinel parallel-syncs %s 10", SentinelName),
			)
			if user, password := primary.opts.login(); password != "" {
				config = append(config,
					fmt.Sprintf("sentinel auth-user %s %s", SentinelName, user),
					fmt.Sprintf("sentinel auth-pass %s %q", SentinelName, password))
			}
			s.write("data/"+file, config)
		},
	})
	return s
}

// hurry waits for a Sentinel and shortens its periods, which are seconds by default, except the ping period: a
// replica that sent no INFO for five of them is not promoted, and while the primary is down it sends one per
// second. A Sentinel that was suspended treats that as a broken clock, and is idle for the tilt period.
func (r *Redis) hurry() error {
	_, err := r.Do("SENTINEL", "DEBUG",
		"info-period", "200", "ask-period", "100", "publish-period", "100", "tilt-period", "1000")
	return err
}

// Addrs returns the addresses of the Sentinels.
func (g *SentinelGroup) Addrs() []string { return (&group[*Redis]{Nodes: g.Sentinels}).Addrs() }

// Primary waits for the end of a failover, and returns the primary that most Sentinels report.
func (g *SentinelGroup) Primary() *Redis {
	g.t.Helper()
	return g.AwaitFailover(nil)
}

// AwaitFailover waits until a node other than old is the primary.
func (g *SentinelGroup) AwaitFailover(old *Redis) *Redis {
	g.t.Helper()
	return pollFor(g.t, settleLimit, func() (*Redis, error) {
		primary, err := g.primary()
		if err == nil && primary == old {
			err = fmt.Errorf("%s is still the primary", old.Addr())
		}
		return primary, err
	})
}

// AwaitReplicas waits until all other running nodes follow the primary.
func (g *SentinelGroup) AwaitReplicas() {
	g.t.Helper()
	Poll(g.t, settleLimit, func() error { return hasReplicas(g.Primary(), len(awake(g.Nodes))-1) })
}

// AwaitSentinels waits until running Sentinels know each other and could promote any running replica.
func (g *SentinelGroup) AwaitSentinels() {
	g.t.Helper()
	pollEach(g.t, g.Sentinels, func(s *Redis) error {
		return knowsAll(s, len(awake(g.Nodes))-1, len(awake(g.Sentinels))-1)
	})
	// A Sentinel demotes a promoted replica if it has not heard of the failover within four publish periods,
	// which must be longer than a busy machine takes.
	pollEach(g.t, g.Sentinels, func(s *Redis) error {
		_, err := s.Do("SENTINEL", "DEBUG", "publish-period", "2000")
		return err
	})
}

func (g *SentinelGroup) primary() (*Redis, error) {
	votes := make(map[string]int)
	for _, s := range awake(g.Sentinels) {
		value, err := s.Do("SENTINEL", "get-master-addr-by-name", SentinelName)
		if addr, ok := value.([]any); err == nil && ok && len(addr) == 2 {
			votes[fmt.Sprintf("%s:%s", addr...)]++
		}
	}
	for _, r := range g.Nodes {
		if votes[r.Addr()] <= len(g.Sentinels)/2 {
			continue
		}
		if !r.awake() {
			return nil, fmt.Errorf("the primary %s is down", r.Addr())
		}
		return r, isPrimary(r)
	}
	return nil, fmt.Errorf("no primary that most Sentinels agree on: %v", votes)
}

// isPrimary returns an error unless a server reports that it is a primary.
func isPrimary(r *Redis) error {
	info, err := r.Info("replication")
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("%s is not a primary", r.Addr())
	}
	return err
}

func hasReplicas(r *Redis, n int) error {
	info, err := r.Info("replication")
	if online := strings.Count(fmt.Sprint(info), ",state=online,"); err == nil && online < n {
		err = fmt.Errorf("%d of %d replicas of %s are online", online, n, r.Addr())
	}
	return err
}

// knowsAll returns an error unless a Sentinel knows these numbers of promotable replicas and of others.
func knowsAll(s *Redis, replicas, others int) error {
	count := func(what, flags, link string) (n int, err error) {
		value, err := s.Do("SENTINEL", what, SentinelName)
		list, _ := value.([]any)
		for _, server := range list {
			if fields := fmt.Sprint(server); strings.Contains(fields, flags) && strings.Contains(fields, link) {
				n++
			}
		}
		return n, err
	}
	healthy, err := count("replicas", " flags slave ", " master-link-status ok ")
	if err != nil {
		return err
	}
	alive, err := count("sentinels", " flags sentinel ", "")
	if err == nil && (healthy < replicas || alive < others) {
		err = fmt.Errorf("%s knows %d of %d replicas and %d of %d other Sentinels", s.Addr(), healthy, replicas, alive, others)
	}
	return err
}

const (
	clusterPrimaries   = 3
	clusterSlots       = 16384
	clusterNodeTimeout = time.Second // short, so that a failover takes two or three seconds; enough for a busy machine
)

// A Cluster is a Redis Cluster of three primaries with one replica each. The first three nodes start as
// primaries, Nodes[i+3] as the replica of Nodes[i].
type Cluster struct{ group[*Redis] }

// StartCluster starts a Cluster and waits until all slots are served and all replicas follow.
// Wipe removes the data of a node, but not its place in the Cluster.
func StartCluster(t testing.TB, opts RedisOptions) *Cluster {
	t.Helper()
	c := &Cluster{group[*Redis]{t: t}}
	for range 2 * clusterPrimaries {
		bus := ports.Reserve(t) // the default, port+10000, may not be free
		r := newRedis(t, opts,
			"cluster-enabled yes",
			"cluster-config-file ../nodes.conf", // not in the data folder, so that Wipe keeps it
			fmt.Sprintf("cluster-port %d", bus),
			fmt.Sprintf("cluster-node-timeout %d", clusterNodeTimeout.Milliseconds()),
			"cluster-replica-validity-factor 0", // a replica may always take over
			"cluster-allow-replica-migration no",
			"tls-cluster "+yesNo[opts.TLS != nil],
		)
		r.bus = bus
		c.Nodes = append(c.Nodes, r)
	}
	startAll(c.Nodes...)
	for i, r := range c.Nodes {
		r.Must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)) // without epochs the nodes have to agree on them first
		if i < clusterPrimaries {
			first, end := clusterSlots*i/clusterPrimaries, clusterSlots*(i+1)/clusterPrimaries
			r.Must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(end-1))
		}
		for _, other := range c.Nodes[:i] { // all pairs, because gossip would take longer
			r.Must("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.Port), strconv.Itoa(other.bus))
		}
	}
	pollEach(t, c.Nodes, c.knowsAll)
	for i, replica := range c.Nodes[clusterPrimaries:] {
		replica.Must("CLUSTER", "REPLICATE", c.Nodes[i].Must("CLUSTER", "MYID").(string))
	}
	c.AwaitOK()
	pollEach(t, c.Nodes, func(r *Redis) error { // otherwise a failover might not get enough votes
		if nodes := r.Must("CLUSTER", "NODES").(string); strings.Count(nodes, "slave") != clusterPrimaries {
			return fmt.Errorf("%s does not know all replicas:\n%s", r.Addr(), nodes)
		}
		return nil
	})
	return c
}

// knowsAll returns an error unless a node has shaken hands with all others and knows all slots.
func (c *Cluster) knowsAll(r *Redis) error {
	info, err := r.fields("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	text, err := r.Do("CLUSTER", "NODES")
	nodes, slots := info["cluster_known_nodes"], info["cluster_slots_assigned"]
	if err == nil && (strings.Contains(fmt.Sprint(text), "handshake") ||
		nodes != strconv.Itoa(len(c.Nodes)) || slots != strconv.Itoa(clusterSlots)) {
		err = fmt.Errorf("%s knows %s nodes and %s slots", r.Addr(), nodes, slots)
	}
	return err
}

// AwaitOK waits until all running nodes report a healthy Cluster, and replicas follow a primary.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	pollEach(c.t, c.Nodes, func(r *Redis) error {
		info, err := r.fields("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if state := info["cluster_state"]; state != "ok" {
			return fmt.Errorf("cluster_state of %s: %s", r.Addr(), state)
		}
		info, err = r.Info("replication")
		if err == nil && info["role"] == "slave" && info["master_link_status"] != "up" {
			err = fmt.Errorf("replica %s does not follow: master_link_status is %s", r.Addr(), info["master_link_status"])
		}
		return err
	})
}

// Move kills nodes and starts them with their data on other ports after a pause, as in a StatefulSet.
func (c *Cluster) Move(pause time.Duration, nodes ...*Redis) {
	c.t.Helper()
	for _, r := range nodes {
		r.Kill()
	}
	time.Sleep(pause)
	for _, r := range nodes {
		r.Port, r.bus = ports.Reserve(c.t), ports.Reserve(c.t)
		lines := fmt.Sprintf("port %d\ncluster-port %d\n", r.Port, r.bus) // the last line of an option counts
		file, err := os.OpenFile(filepath.Join(r.dir, "redis.conf"), os.O_APPEND|os.O_WRONLY, 0)
		must(c.t, err)
		_, err = file.WriteString(lines)
		must(c.t, errors.Join(err, file.Close()))
	}
	startAll(nodes...)
}

// MoveSlot begins to move the slot of a key, and returns functions that move its keys and end the move.
func (c *Cluster) MoveSlot(key string) (moveKeys, finish func()) {
	c.t.Helper()
	from := c.Primary(key)
	others := slices.DeleteFunc(awake(c.Nodes), func(r *Redis) bool { return r == from || isPrimary(r) != nil })
	if len(others) == 0 {
		c.t.Fatal("there is no other primary")
	}
	to := others[0]
	slot := strconv.FormatInt(from.Must("CLUSTER", "KEYSLOT", key).(int64), 10)
	fromID, toID := from.Must("CLUSTER", "MYID").(string), to.Must("CLUSTER", "MYID").(string)
	to.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	moveKeys = func() {
		c.t.Helper()
		for {
			keys := from.Must("CLUSTER", "GETKEYSINSLOT", slot, "100").([]any)
			if len(keys) == 0 {
				break
			}
			for _, key := range keys {
				from.Must("MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), key.(string), "0", "5000")
			}
		}
	}
	return moveKeys, func() {
		c.t.Helper()
		moveKeys()
		for _, r := range []*Redis{to, from} { // the others are told by these
			r.Must("CLUSTER", "SETSLOT", slot, "NODE", toID)
		}
		pollEach(c.t, c.Nodes, func(r *Redis) error {
			if _, err := r.Do("TYPE", key); r != to && !strings.Contains(fmt.Sprint(err), to.Addr()) {
				return fmt.Errorf("%s does not know that slot %s has moved to %s: %v", r.Addr(), slot, to.Addr(), err)
			}
			return nil
		})
	}
}

// Primary returns the node that serves a key. It waits for the end of a failover.
func (c *Cluster) Primary(key string) *Redis {
	c.t.Helper()
	return pollFor(c.t, settleLimit, func() (*Redis, error) {
		err := fmt.Errorf("no node is running")
		for _, r := range awake(c.Nodes) {
			if _, err = r.Do("TYPE", key); err == nil { // the others redirect it
				return r, nil
			}
		}
		return nil, fmt.Errorf("no node serves %q: %w", key, err)
	})
}
