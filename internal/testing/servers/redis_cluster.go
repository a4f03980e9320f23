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
			"tls-cluster "+yesNo(opts.TLS != nil),
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
