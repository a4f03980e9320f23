package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

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
