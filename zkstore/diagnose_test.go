package zkstore

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestDiagnose(t *testing.T) {
	var seen diagnosistest.Record
	t.Run("servers", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *diagnosistest.Record){
			"standalone": diagnoseStandalone, "an ensemble": diagnoseEnsemble,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, &seen)
			})
		}
	})
	seen.Complete(t, "zookeeper.")
}

// diagnoseStandalone checks two standalone servers. The first one has no problems.
func diagnoseStandalone(t *testing.T, seen *diagnosistest.Record) {
	first := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		Config: []string{"maxClientCnxns=500"}, Java: []string{"-Dzookeeper.forceSync=yes"},
	})
	second := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"4lw.commands.whitelist=srvr", "maxSessionTimeout=10000"}})

	// The clock of the servers is known after a write.
	s := openQuick(t, "zk://user:SECRET@"+first.Addr()+"/closed")
	diagnosistest.Want(t, s.Diagnose(t.Context(), 10*time.Second), "store.clock unknown", "zookeeper.members warning")
	try(t, s, request("a"))
	findings := seen.Note(t, s.Diagnose(t.Context(), 10*time.Second))
	diagnosistest.Want(t, findings, "zookeeper.members warning")
	if strings.Contains(fmt.Sprint(findings), "SECRET") {
		t.Error("a password was printed")
	}

	seen.Look(t, "zk://"+first.Addr()+"/open", 10*time.Second, "store.clock unknown", "zookeeper.acl warning", "zookeeper.members warning")
	findings = seen.Look(t, "zk://"+second.Addr()+"/open", 10*time.Second, "store.clock unknown", "zookeeper.acl warning", "zookeeper.members warning",
		"zookeeper.session warning", "zookeeper.fsync unknown", "zookeeper.connections unknown", "zookeeper.commands note")
	if f := diagnosistest.Find(t, findings, "zookeeper.fsync"); !strings.Contains(f.Remedy, "4lw.commands.whitelist=srvr,mntr,conf") {
		t.Errorf("%+v", f)
	}

	// The URL names two servers that are not one ensemble. The session is at either of them.
	other := openQuick(t, "zk://"+first.Addr()+","+second.Addr()+"/open")
	var wrong []string
	for _, f := range seen.Note(t, other.Diagnose(t.Context(), 10*time.Second)) {
		if f.ID == "zookeeper.ensemble" && f.Level == store.LevelFailure {
			wrong = append(wrong, f.Node)
		}
	}
	if len(wrong) != 1 {
		t.Errorf("servers of another ensemble: %q, want one of two", wrong)
	}

	// The root of this user belongs to another user.
	stranger := openQuick(t, "zk://stranger:SECRET@"+first.Addr()+"/theirs")
	stranger.root = "/closed"
	if f := diagnosistest.Find(t, seen.Note(t, stranger.Diagnose(t.Context(), time.Second)), "zookeeper.rights"); f.Level != store.LevelFailure {
		t.Errorf("%+v", f)
	}
}

// diagnoseEnsemble checks an ensemble with local sessions, and then the only server that is left.
func diagnoseEnsemble(t *testing.T, seen *diagnosistest.Record) {
	ensemble := servers.StartZooKeeperEnsemble(t, 3, servers.ZooKeeperOptions{
		Config: []string{"localSessionsEnabled=true", "localSessionsUpgradingEnabled=false", "maxClientCnxns=60"},
		Java:   []string{"-Dreadonlymode.enabled=true"},
	})
	all := []string{
		"store.clock unknown", "zookeeper.acl warning", "zookeeper.fsync failure",
		"zookeeper.connections warning", "zookeeper.local-sessions failure",
	}
	seen.Look(t, "zk://"+strings.Join(ensemble.Addrs(), ","), 10*time.Second, all...)
	seen.Look(t, "zk://"+ensemble.Addrs()[0], 10*time.Second, append(all, "zookeeper.servers warning")...)

	s := openQuick(t, "zk://"+strings.Join(ensemble.Addrs(), ","))
	ensemble.Nodes[1].Kill()
	ensemble.Nodes[2].Kill()
	servers.Poll(t, time.Minute, func() error {
		mode, err := ensemble.Nodes[0].Mode()
		if err == nil && mode != "read-only" {
			err = fmt.Errorf("mode %s", mode)
		}
		return err
	})
	findings := seen.Note(t, s.Diagnose(t.Context(), 10*time.Second))
	i := slices.IndexFunc(findings, func(f store.Finding) bool {
		return f.ID == "zookeeper.read-only" && f.Node == ensemble.Nodes[0].Addr()
	})
	if i < 0 || findings[i].Level != store.LevelFailure {
		t.Errorf("the server that is left: %s", diagnosistest.Text(findings))
	}
}

func TestDiagnoseLooksAtAServerThoughTheOneBeforeItHangs(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	first := ports.Addr(ports.Reserve(t)) // servers are checked in the order of their addresses
	for first > server.Addr() {
		first = ports.Addr(ports.Reserve(t))
	}
	silent, err := net.Listen("tcp", first) // accepts connections, and never replies
	must(t, err)
	defer silent.Close()
	s := openQuick(t, "zk://"+first+","+server.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 2*bounded.CallTimeout)
	defer cancel()
	levels := make(map[string]store.Level)
	for _, f := range s.Diagnose(ctx, 10*time.Second) {
		if f.ID == "zookeeper.read-only" {
			levels[f.Node] = f.Level
		}
	}
	if want := map[string]store.Level{first: store.LevelUnknown, server.Addr(): store.LevelOK}; !maps.Equal(levels, want) {
		t.Errorf("levels %v, want %v", levels, want)
	}
}

func TestDiagnoseCountsTheServersThatVote(t *testing.T) {
	const config = "server.1=a:1:2:participant;0.0.0.0:2181\nserver.2=b:1:2:participant\nserver.3=c:1:2:observer;0.0.0.0:2181\nversion=100000000"
	if n := voters(config); n != 2 {
		t.Errorf("%d servers, want 2", n)
	}
	for n := range 6 {
		var want []string
		if n < 3 || n%2 == 0 {
			want = []string{"zookeeper.members warning"}
		}
		for _, probe := range ensembleProbes {
			if probe.ID == "zookeeper.members" {
				diagnosistest.Want(t, diagnosis.Run("", &ensemble{members: n}, []diagnosis.Probe[*ensemble]{probe}), want...)
			}
		}
	}
}
