package redisstore

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// openURL opens a URL for a test.
func openURL(t testing.TB, url string) *Store {
	t.Helper()
	s := openQuick(t, url)
	t.Cleanup(func() { s.Close() })
	return s
}

// diagnose looks at a store.
func diagnose(t testing.TB, s *Store) []store.Finding {
	t.Helper()
	return new(diagnosistest.Record).Note(t, s.Diagnose(t.Context(), time.Millisecond))
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

// The checks examine the primary and its replicas.
func TestDiagnoseSentinel(t *testing.T) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{InMemory: true})
	s := openURL(t, "redis+sentinel://"+strings.Join(group.Addrs(), ",")+"/"+servers.SentinelName)
	findings := diagnose(t, s)
	diagnosistest.Want(t, relaxed(findings), "redis.empty-restart failure", "redis.min-replicas warning", "redis.persistence warning", "redis.replicas warning")
}

// The checks examine each primary of a Cluster.
func TestDiagnoseACluster(t *testing.T) {
	cluster := servers.StartCluster(t, servers.RedisOptions{Config: []string{
		"appendfsync always", "min-replicas-to-write 1", "min-replicas-max-lag 1", "cluster-require-full-coverage no",
	}})
	s := openURL(t, "redis+cluster://"+strings.Join(cluster.Addrs(), ","))
	// A max-lag of a second is above this TTL.
	diagnosistest.Want(t, relaxed(diagnose(t, s)), "redis.min-replicas warning", "redis.replicas warning")
	cluster.Nodes[1].Must("CONFIG", "SET", "cluster-require-full-coverage", "yes")
	for _, node := range cluster.Nodes {
		node.Must("CLUSTER", "DELSLOTS", "0")
	}
	findings := diagnose(t, s)
	diagnosistest.Want(t, relaxed(findings), "redis.cluster failure", "redis.cluster-coverage note", "redis.min-replicas warning", "redis.replicas warning")
	for _, f := range findings {
		if f.ID == "redis.cluster-coverage" && (f.Level == store.LevelNote) != (f.Node == cluster.Nodes[1].Addr()) {
			t.Errorf("%+v", f)
		}
	}
	cluster.Nodes[0].Kill()
	if text := diagnosistest.Text(diagnose(t, s)); strings.Count(text, "failure redis.answers") != 1 {
		t.Errorf("want one server that does not answer:\n%s", text)
	}
}

// A user with the documented rights can use locks. Values that doctor then cannot read are
// unknown. The further rights in the documentation are enough to read all of them.
func TestDiagnoseWithTheDocumentedRights(t *testing.T) {
	acl, further := documentedACL(t), documentedRights(t, "For \"holdfast doctor\", add ", ":")
	server := servers.StartRedis(t, servers.RedisOptions{
		ACL:    []string{"user default off", "user " + acl, "user doctor " + strings.Join(strings.Fields(acl)[1:], " ") + further},
		Config: []string{"appendfsync always"},
	})
	look := func(user string) []store.Finding {
		s := openURL(t, fmt.Sprintf("redis://%s:PASSWORD@%s", user, server.Addr()))
		findings := s.Diagnose(t.Context(), time.Second)
		if strings.Contains(fmt.Sprint(findings), "PASSWORD") {
			t.Error("a password was printed")
		}
		return slices.DeleteFunc(findings, func(f store.Finding) bool { return f.ID == "redis.uptime" })
	}
	for _, f := range look("locks") {
		if f.Level > store.LevelUnknown {
			t.Errorf("%+v", f)
		}
	}
	if f := diagnosistest.Find(t, look("locks"), "redis.rights"); f.Level != store.LevelOK {
		t.Errorf("%+v", f)
	}
	if f := diagnosistest.Find(t, look("locks"), "redis.eviction"); f.Level != store.LevelUnknown || !strings.Contains(f.Remedy, "allow INFO") {
		t.Errorf("%+v", f)
	}
	diagnosistest.Want(t, look("doctor"))
}

// documentedRights returns the rights in the package documentation between two texts.
func documentedRights(t testing.TB, from, to string) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	_, rest, found := strings.Cut(string(text), from)
	rest, _, _ = strings.Cut(rest, to)
	if err != nil || !found {
		t.Fatalf("doc.go names no rights after %q", from)
	}
	var rights string
	for _, word := range strings.Fields(rest) {
		if strings.HasPrefix(word, "+") {
			rights += " " + strings.Trim(word, ",.")
		}
	}
	return rights
}

// Doctor checks for the same rights that the documentation names.
func TestDiagnoseLooksForTheDocumentedRights(t *testing.T) {
	var documented []string
	for _, word := range strings.Fields(documentedACL(t)) {
		if command, ok := strings.CutPrefix(word, "+"); ok {
			documented = append(documented, command)
		}
	}
	needed := append(rediscore.CommandRights(false, true), rediscore.CommandRights(true, true)...)
	for _, command := range documented {
		// These rights are needed to connect, so the user has them.
		if !slices.Contains(needed, command) && !slices.Contains([]string{"hello", "auth", "select"}, command) {
			t.Errorf("doctor does not look for %s", command)
		}
	}
	for _, command := range needed {
		if !slices.Contains(documented, command) && command != "wait" && command != "asking" {
			t.Errorf("doctor looks for %s, which the documentation does not name", command)
		}
	}
}

// A client that reads from replicas learns of a lock too late.
func TestDiagnoseAClientThatReadsFromReplicas(t *testing.T) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{})
	for name, reads := range map[string]bool{"the primary": false, "replicas": true} {
		option := rueidis.ClientOption{
			InitAddress: group.Addrs(), Sentinel: rueidis.SentinelOption{MasterSet: servers.SentinelName},
		}
		if reads {
			option.SendToReplicas = func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() }
		}
		s, err := New(newClient(t, option))
		must(t, err)
		t.Cleanup(func() { s.Close() })
		f := diagnosistest.Find(t, s.Diagnose(t.Context(), time.Second), "redis.role")
		if (f.Level == store.LevelFailure) != reads {
			t.Errorf("a client that reads from %s: %+v", name, f)
		}
	}
}

func TestDiagnoseAQuorum(t *testing.T) {
	const ttl = 3 * time.Second
	var record diagnosistest.Record
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{Config: []string{"appendfsync always"}})
	hosts := quorumHosts(nodes)
	for _, node := range nodes {
		servers.Poll(t, time.Minute, func() error {
			info, err := node.Info("server")
			if up, _ := strconv.Atoi(info["uptime_in_seconds"]); err == nil && up < 5 { // the server may count one second too many
				err = fmt.Errorf("up for %d s", up)
			}
			return err
		})
	}
	// look checks a URL, and returns the node of the first finding that is not OK.
	look := func(url string, want ...string) string {
		t.Helper()
		for _, f := range record.Look(t, "quorum+redis://"+url, ttl, want...) {
			if f.Level != store.LevelOK {
				return f.Node
			}
		}
		return ""
	}
	look(hosts + "?restart=3s")
	look(hosts+"?restart=off", "quorum.restart-delay failure")
	look(hosts+"?restart=1s", "quorum.restart-delay failure")
	look(hosts+"?restart=3s&timeout=2s", "quorum.timeout warning")
	if node := look(hosts+"?restart=1h", "quorum.restarted warning"); !strings.Contains(hosts, node) {
		t.Errorf("node %q, want one of %s", node, hosts)
	}

	fourth := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	look(hosts+","+fourth.Addr()+"?restart=3s", "quorum.nodes warning", "quorum.persistence warning", "quorum.restarted warning")
	nodes[2].Must("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	if node := look(hosts+"?restart=3s", "redis.eviction failure"); node != nodes[2].Addr() {
		t.Errorf("node %q, want %s", node, nodes[2].Addr())
	}
	nodes[2].Kill()
	if node := look(hosts+"?restart=3s", "quorum.answers warning"); node != nodes[2].Addr() {
		t.Errorf("node %q, want %s", node, nodes[2].Addr())
	}

	// New refuses one server under two addresses. It cannot do so if one of them is not reachable
	// at that time.
	proxy := faultproxy.Start(t, nodes[1].Addr())
	proxy.Cut()
	s, err := store.Open(t.Context(), "quorum+redis://"+quorumHosts(nodes[:2])+","+proxy.Addr()+"?restart=3s")
	must(t, err)
	t.Cleanup(func() { s.Close() })
	proxy.Heal()
	var findings []store.Finding
	servers.Poll(t, time.Minute, func() error { // until the quorum has connected to the second address
		findings = s.(store.Diagnoser).Diagnose(t.Context(), ttl)
		for _, f := range findings {
			if f.ID == "quorum.answers" && f.Level != store.LevelOK {
				return fmt.Errorf("%s: %s", f.Node, f.Found)
			}
		}
		return nil
	})
	diagnosistest.Want(t, record.Note(t, findings), "quorum.same-server failure")

	record.Complete(t, "quorum.", "quorum.clocks") // a test with a wrong clock is in test/faults
}
