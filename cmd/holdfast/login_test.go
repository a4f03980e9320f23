//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// The command line may be right, and the password may have changed.
func TestAWrongPasswordIsNotAMistakeOnTheCommandLine(t *testing.T) {
	for name, urls := range map[string]func(s *site) []string{
		"redis": func(s *site) []string {
			addr := servers.StartRedis(s.t, servers.RedisOptions{Password: "sEcReT"}).Addr()
			return []string{"redis://:wrong@" + addr, "redis://" + addr}
		},
		"etcd": func(s *site) []string {
			addr := servers.StartEtcd(s.t, servers.EtcdOptions{Password: "sEcReT"}).Addr()
			return []string{"etcd://root:wrong@" + addr, "etcd://" + addr}
		},
		"zookeeper": func(s *site) []string {
			addr := servers.StartZooKeeper(s.t, servers.ZooKeeperOptions{}).Addr()
			s.run("run", "--store", "zk://app:sEcReT@"+addr, "a", "--", "true").wantCode(0) // from here on the nodes are its own
			return []string{"zk://app:wrong@" + addr, "zk://" + addr}
		},
		"postgres": func(s *site) []string {
			server := servers.StartPostgres(s.t, servers.PostgresOptions{NoSync: true, Password: true})
			server.Must("CREATE ROLE app LOGIN PASSWORD 'sEcReT'; CREATE ROLE idle NOLOGIN PASSWORD 'sEcReT'")
			at := "@" + server.Addr() + "/postgres"
			return []string{"postgres://app:wrong" + at, "postgres://app" + at, "postgres://idle:sEcReT" + at}
		},
		"mysql": func(s *site) []string {
			server := servers.StartMariaDB(s.t, servers.MariaDBOptions{})
			right := server.URL(server.Addr())
			login := servers.MariaDBUser + ":" + servers.MariaDBPassword + "@"
			return []string{strings.Replace(right, login, servers.MariaDBUser+":wrong@", 1), strings.Replace(right, login, servers.MariaDBUser+"@", 1)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, url := range urls(s) {
				p := s.run("run", "--store", url, "a", "--", "true")
				p.wantCode(69)
				p.wantErr("cannot open the store", "check the user and the password", "--store or HOLDFAST_STORE")
			}
		})
	}
}
