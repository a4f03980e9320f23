package etcdstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// synced makes etcd wait for its disk, as it does by default.
const synced = "--unsafe-no-fsync=false"

var etcdSeen diagnosistest.Record

func wantFindings(t testing.TB, s *Store, ttl time.Duration, want ...string) []store.Finding {
	t.Helper()
	findings := etcdSeen.Note(t, s.Diagnose(t.Context(), ttl))
	diagnosistest.Want(t, findings, want...)
	return findings
}

func TestDiagnose(t *testing.T) {
	t.Run("servers", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"one": diagnoseOne, "two": diagnoseTwo, "three": diagnoseThree, "a learner": diagnoseLearner, "users": diagnoseUsers,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	etcdSeen.Complete(t, "etcd.", "etcd.version")
}

// diagnoseOne checks one server with a small quota and a long election timeout.
func diagnoseOne(t *testing.T) {
	const quota = 40 << 20
	server := servers.StartEtcd(t, servers.EtcdOptions{Args: []string{
		synced, "--election-timeout=2000", fmt.Sprintf("--quota-backend-bytes=%d", quota),
	}})
	s, client := opened(t, server.Addr()), direct(t, server.Addr())
	wantFindings(t, s, 30*time.Second, "etcd.members warning")
	findings := wantFindings(t, s, 2*time.Second, "etcd.members warning", "etcd.ttl warning")
	if f := diagnosistest.Find(t, findings, "etcd.ttl"); !strings.Contains(f.Found, "2 s is granted as 3 s") {
		t.Errorf("%+v", f)
	}
	nothingLeft(t, client)

	put := func(key string, n, size int) {
		inParallel(n, func(i int) {
			if _, err := client.Put(t.Context(), fmt.Sprint(key, i%20), strings.Repeat("x", size)); err != nil {
				t.Error(err)
			}
		})
	}
	put("many", manyRevisions, 1)
	wantFindings(t, s, 30*time.Second, "etcd.members warning", "etcd.compaction warning")
	put("large", 20, 1<<20)
	deleted, err := client.Delete(t.Context(), "large", clientv3.WithPrefix())
	noError(t, err)
	_, err = client.Compact(t.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical())
	noError(t, err)
	servers.Poll(t, patience, func() error { // the size in use is updated at the next commit
		put("commit", 1, 1)
		status, err := client.Status(t.Context(), server.Addr())
		if err == nil && status.DbSizeInUse > status.DbSize/2 {
			err = fmt.Errorf("%d of %d bytes are in use", status.DbSizeInUse, status.DbSize)
		}
		return err
	})
	wantFindings(t, s, 30*time.Second, "etcd.members warning", "etcd.fragmentation warning")
	for i := 0; ; i++ { // free pages are used first
		put(fmt.Sprint("more", i), 1, 1<<20)
		status, err := client.Status(t.Context(), server.Addr())
		noError(t, err)
		if status.DbSize*100 > quota*(mostSize+2) {
			break
		}
	}
	if f := diagnosistest.Find(t, etcdSeen.Note(t, s.Diagnose(t.Context(), time.Minute)), "etcd.size"); f.Level != store.LevelWarning {
		t.Errorf("%+v", f)
	}
	for {
		if _, err := client.Put(t.Context(), "full", strings.Repeat("x", 1<<20)); err != nil {
			break // no space
		}
	}
	if f := diagnosistest.Find(t, etcdSeen.Note(t, s.Diagnose(t.Context(), time.Minute)), "etcd.alarm"); f.Level != store.LevelFailure || !strings.Contains(f.Found, "NOSPACE") {
		t.Errorf("%+v", f)
	}
}

// diagnoseTwo checks two servers, then the same two after one was stopped, and one of them alone.
func diagnoseTwo(t *testing.T) {
	cluster := servers.StartEtcdCluster(t, 2, servers.EtcdOptions{})
	s := opened(t, cluster.Addrs()...)
	wantFindings(t, s, 30*time.Second, "etcd.fsync failure", "etcd.members warning")
	one := opened(t, cluster.Nodes[0].Addr())
	wantFindings(t, one, 30*time.Second, "etcd.endpoints warning", "etcd.fsync failure", "etcd.members warning")
	cluster.Nodes[1].Kill()
	client := direct(t, cluster.Nodes[0].Addr())
	servers.Poll(t, patience, func() error {
		status, err := client.Status(t.Context(), cluster.Nodes[0].Addr())
		if err == nil && status.Leader != 0 {
			err = fmt.Errorf("there is still a leader")
		}
		return err
	})
	findings := etcdSeen.Note(t, s.Diagnose(t.Context(), 30*time.Second))
	for id, level := range map[string]store.Level{"etcd.leader": store.LevelFailure, "etcd.rights": store.LevelUnknown, "etcd.ttl": store.LevelUnknown, "etcd.compaction": store.LevelUnknown} {
		if f := diagnosistest.Find(t, findings, id); f.Level != level {
			t.Errorf("%+v, want %v", f, level)
		}
	}
	for _, f := range findings {
		if f.ID == "etcd.answers" && (f.Level == store.LevelWarning) != (f.Node == cluster.Nodes[1].Addr()) {
			t.Errorf("%+v", f)
		}
	}
}

// diagnoseLearner checks a server that does not vote.
func diagnoseLearner(t *testing.T) {
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	learner := server.StartLearner(t)
	client := direct(t, server.Addr())
	client.SetEndpoints(server.Addr(), learner.Addr())
	s, err := New(client)
	noError(t, err)
	defer s.Close()
	for _, f := range etcdSeen.Note(t, s.Diagnose(t.Context(), 30*time.Second)) {
		if f.ID == "etcd.learner" && (f.Level == store.LevelFailure) != (f.Node == learner.Addr()) {
			t.Errorf("%+v", f)
		}
	}
}

// diagnoseThree checks servers without problems, with TLS.
func diagnoseThree(t *testing.T) {
	certs := servers.NewCertificates(t)
	cluster := servers.StartEtcdCluster(t, 3, servers.EtcdOptions{Args: []string{synced}, TLS: certs})
	s := openQuick(t, fmt.Sprintf("etcds://%s?ca=%s&cert=%s&key=%s", strings.Join(cluster.Addrs(), ","), certs.CAFile, certs.CertFile, certs.KeyFile), slowBeat)
	findings := wantFindings(t, s, 30*time.Second)
	if f := diagnosistest.Find(t, findings, "etcd.fsync"); f.Node == "" || f.Level != store.LevelOK {
		t.Errorf("%+v", f)
	}
}

// diagnoseUsers checks a server as users with more and fewer rights.
func diagnoseUsers(t *testing.T) {
	server := servers.StartEtcd(t, servers.EtcdOptions{Password: rootPassword, Args: []string{synced}})
	root := asRoot(t, server.Addr())
	addLocks(t, root)
	wantFindings(t, opened(t, "locks:PASSWORD@"+server.Addr()), 30*time.Second, "etcd.members warning")
	addUser(t, root, "reader", "holdfast/", clientv3.PermissionType(clientv3.PermRead))
	findings := wantFindings(t, opened(t, "reader:PASSWORD@"+server.Addr()), 30*time.Second, "etcd.members warning", "etcd.rights failure")
	if strings.Contains(fmt.Sprint(findings), "PASSWORD") {
		t.Error("a password was printed")
	}
}

func TestDiagnoseFindsUnsafeVersions(t *testing.T) {
	for version, unsafe := range map[string]bool{
		"3.5.0": true, "3.5.1": true, "3.5.2": true, "3.5.3": false, "3.5.20": false, "3.4.0": false, "3.3.27": true, "2.3.8": true, "3.6.16": false,
	} {
		var want []string
		if unsafe {
			want = []string{"etcd.version failure"}
		}
		e := &endpointStatus{StatusResponse: &clientv3.StatusResponse{Version: version}}
		for _, probe := range endpointProbes {
			if probe.ID == "etcd.version" {
				diagnosistest.Want(t, diagnosis.Run("", e, []diagnosis.Probe[*endpointStatus]{probe}), want...)
			}
		}
	}
}
