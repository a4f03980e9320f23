package servers

import "testing"

func TestEtcdClusterElectsAnotherLeader(t *testing.T) {
	cluster := StartEtcdCluster(t, 3, EtcdOptions{})
	first := cluster.Leader()
	if n := len(cluster.Followers()); n != 2 {
		t.Fatalf("%d followers of 3 servers", n)
	}
	first.Kill()
	if second := cluster.Leader(); second == first {
		t.Fatal("a killed server leads")
	}
	first.Restart()
	cluster.Leader()
}

func TestEtcdStartsWithTLS(t *testing.T) {
	StartEtcd(t, EtcdOptions{TLS: NewCertificates(t)})
}

func TestEtcdWithAPasswordRefusesAnonymousCalls(t *testing.T) {
	server := StartEtcd(t, EtcdOptions{Password: "PASSWORD"})
	if err := server.Ask("/v3/kv/range", map[string]any{"key": "YQ=="}, nil); err == nil {
		t.Error("an anonymous call may read")
	}
}
