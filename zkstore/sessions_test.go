package zkstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

func TestASessionAndTheServersThatResumeIt(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Run("a server that grants a shorter timeout shortens TTLs", func(t *testing.T) {
		s := openQuick(t, "zk://"+server.Addr()+"/shorter?session=60s")
		req := request("a")
		first, session := try(t, s, req), s.currentSession()
		config := filepath.Join(filepath.Dir(server.DataDir()), "zoo.cfg")
		text, err := os.ReadFile(config)
		must(t, err)
		must(t, os.WriteFile(config, append(text, "maxSessionTimeout=5000\n"...), 0o600))
		server.Restart()
		if again := try(t, s, req); again.Token != first.Token || again.TTL != 4*time.Second || s.currentSession() != session {
			t.Errorf("token %d, then %d; TTL %v, then %v, want 4s", first.Token, again.Token, first.TTL, again.TTL)
		}
		renewals := []store.Renewal{suites.Renewal(req)}
		if out, err := s.Renew(within(t), renewals); err != nil || out[0].TTL != 4*time.Second {
			t.Errorf("renewed: %+v, %v, want 4s", out, err)
		}
	})
	t.Run("servers that lost all data get a new one", func(t *testing.T) {
		s := openQuick(t, "zk://"+server.Addr()+"/wiped?session=2s")
		req := request("a")
		try(t, s, req)
		server.Wipe()
		server.Restart()
		if answer := try(t, s, request("a")); !answer.Granted() {
			t.Errorf("%+v: want a grant", answer.Refusal)
		}
		renewals := []store.Renewal{suites.Renewal(req)}
		if out, err := s.Renew(within(t), renewals); err != nil || out[0].Status != store.Gone {
			t.Errorf("the grant of the old session: %+v, %v, want gone", out, err)
		}
	})
}

func TestAUserThatTheServersRefuse(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Java: []string{"-Dzookeeper.DigestAuthenticationProvider.enabled=false"}})
	_, err := store.Open(within(t), "zk://user:secret@"+server.Addr())
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "user and the password") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Open: %v", err)
	}
	proxy := faultproxy.Start(t, server.Addr())
	c := wire.Dial(wire.Options{
		Servers: []string{proxy.Addr()}, Timeout: time.Minute, Auth: "user:secret",
		Session: func(int64, time.Duration) {}, Event: func(string, bool) {},
	})
	defer c.Close(t.Context(), false)
	time.Sleep(time.Second)
	if n := proxy.Accepted(); n > 20 {
		t.Errorf("%d connections in a second, want pauses between them", n)
	}
}
