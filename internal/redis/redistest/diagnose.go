package redistest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// diagnose looks at a store.
func diagnose(t testing.TB, s store.Store) []store.Finding {
	t.Helper()
	d, ok := s.(store.Diagnoser)
	if !ok {
		t.Fatalf("%T is no Diagnoser", s)
	}
	return new(diagnosistest.Record).Note(t, d.Diagnose(t.Context(), time.Millisecond))
}

// relaxed leaves out the findings that depend on how fast a busy machine is. The store is
// diagnosed for a TTL of one millisecond, because checks for a longer TTL report servers that
// have just started.
func relaxed(findings []store.Finding) (rest []store.Finding) {
	for _, f := range findings {
		switch f.ID {
		case "redis.uptime", "redis.fork", "redis.slow-commands", "store.clock", "store.clock-spread", "redis.delayed-fsync":
		default:
			rest = append(rest, f)
		}
	}
	return rest
}

// DiagnoseSingle tests the checks of one server through a client library. The store is opened as a
// user that may do everything.
func DiagnoseSingle(t *testing.T, open func(t testing.TB, addr string) store.Store) {
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s := open(t, server.Addr())
	findings := diagnose(t, s)
	diagnosistest.Want(t, relaxed(findings), "redis.persistence warning")
	if f := diagnosistest.Find(t, findings, "redis.persistence"); f.Node != server.Addr() {
		t.Errorf("node %q, want %q", f.Node, server.Addr())
	}
	server.Must("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lfu", "timeout", "10", "appendonly", "yes", "appendfsync", "always")
	server.Must("DEBUG", "SLEEP", "0.05")
	findings = diagnose(t, s)
	diagnosistest.Want(t, relaxed(findings), "redis.eviction failure", "redis.idle-timeout warning")
	if f := diagnosistest.Find(t, findings, "redis.slow-commands"); f.Level != store.LevelWarning {
		t.Errorf("a slow command: %+v", f)
	}
	if f := diagnosistest.Find(t, findings, "store.identity"); f.Level != store.LevelOK || !strings.Contains(f.Found, "replication ID ") {
		t.Errorf("the identity: %+v", f)
	}
}

// DiagnoseSentinel tests that the checks examine the primary and its replicas.
func DiagnoseSentinel(t *testing.T, open func(t testing.TB, addrs []string) store.Store) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{InMemory: true})
	findings := diagnose(t, open(t, group.Addrs()))
	diagnosistest.Want(t, relaxed(findings), "redis.empty-restart failure", "redis.min-replicas warning", "redis.persistence warning", "redis.replicas warning")
}

// DiagnoseCluster tests that the checks examine each primary of a Cluster.
func DiagnoseCluster(t *testing.T, open func(t testing.TB, addrs []string) store.Store) {
	cluster := servers.StartCluster(t, servers.RedisOptions{Config: []string{
		"appendfsync always", "min-replicas-to-write 1", "min-replicas-max-lag 1", "cluster-require-full-coverage no",
	}})
	s := open(t, cluster.Addrs())
	findings := diagnose(t, s)
	// A max-lag of a second is above this TTL.
	diagnosistest.Want(t, relaxed(findings), "redis.min-replicas warning", "redis.replicas warning")
	nodes := make(map[string]bool)
	for _, f := range findings {
		if f.ID == "redis.cluster" {
			nodes[f.Node] = true
		}
	}
	if len(nodes) != 3 {
		t.Errorf("looked at %v, want three primaries", nodes)
	}
	cluster.Nodes[1].Must("CONFIG", "SET", "cluster-require-full-coverage", "yes")
	for _, node := range cluster.Nodes {
		node.Must("CLUSTER", "DELSLOTS", "0")
	}
	findings = diagnose(t, s)
	diagnosistest.Want(t, relaxed(findings), "redis.cluster failure", "redis.cluster-coverage note", "redis.min-replicas warning", "redis.replicas warning")
	for _, f := range findings {
		if f.ID == "redis.cluster-coverage" && (f.Level == store.LevelNote) != (f.Node == cluster.Nodes[1].Addr()) {
			t.Errorf("%+v", f)
		}
	}

	cluster.Nodes[0].Kill()
	findings = diagnose(t, s)
	answers := 0
	for _, f := range findings {
		if f.ID == "redis.answers" && f.Level == store.LevelOK {
			answers++
		}
	}
	if f := diagnosistest.Find(t, findings, "redis.answers"); answers != 2 || !strings.Contains(diagnosistest.Text(findings), "failure redis.answers") {
		t.Errorf("%d servers answer, want 2: %+v", answers, f)
	}
}
