package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

const rootPassword = "ROOT"

// asRoot returns a client with all rights.
func asRoot(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Username: "root", Password: rootPassword, Logger: zap.NewNop(), DialTimeout: dialTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// addUser creates the user "locks" with the documented rights.
func addUser(t testing.TB, root *clientv3.Client) {
	t.Helper()
	prefix := documentedRights(t)
	for _, step := range []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := root.RoleAdd(ctx, "locks"); return err },
		func(ctx context.Context) error {
			_, err := root.RoleGrantPermission(ctx, "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func(ctx context.Context) error { _, err := root.UserAdd(ctx, "locks", "PASSWORD"); return err },
		func(ctx context.Context) error { _, err := root.UserGrantRole(ctx, "locks", "locks"); return err },
	} {
		if err := step(within(t, patience)); err != nil {
			t.Fatal(err)
		}
	}
}

// handOff passes a name from one store to a waiter of another. Only a wake-up can end the Wait of
// that waiter.
func handOff(t testing.TB, from, to *Store, name string) {
	t.Helper()
	holder, waiter := request(name, false), request(name, true)
	must(t, from, holder, 0)
	must(t, to, waiter, 1)
	if err := from.Release(within(t, patience), name, holder.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	for granted := false; !granted; {
		if err := to.Wait(within(t, patience/2), name, waiter.ID); err != nil {
			t.Fatalf("the waiter is not woken: %v", err)
		}
		answer, err := to.Acquire(within(t, patience), waiter)
		if err != nil {
			t.Fatal(err)
		}
		granted = answer.Granted()
	}
	if err := to.Release(within(t, patience), name, waiter.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
}

// jwt returns the argument for signed tokens, which expire after a fixed time.
func jwt(t testing.TB, ttl time.Duration) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret for the signatures of one test"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("--auth-token=jwt,priv-key=%s,sign-method=HS256,ttl=%v", secret, ttl)
}

// A stream keeps the login with which it was opened. After the login has expired, the server
// refuses further watches on the stream without naming them.
func TestWaitersAreWokenAfterTheLoginOfTheirStreamHasExpired(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	expire := func(t testing.TB, _ *clientv3.Client) { time.Sleep(ttl + 2*time.Second) } // the server checks once a second
	for what, test := range map[string]struct {
		args []string
		over func(t testing.TB, root *clientv3.Client)
	}{
		"a simple token expires": {[]string{fmt.Sprintf("--auth-token-ttl=%d", ttl/time.Second)}, expire},
		"a signed token expires": {[]string{jwt(t, ttl)}, expire},
		"the password is changed": {nil, func(t testing.TB, root *clientv3.Client) {
			if _, err := root.UserChangePassword(within(t, patience), "locks", "PASSWORD"); err != nil {
				t.Fatal(err)
			}
		}},
		"a role changes, with signed tokens": {[]string{jwt(t, time.Hour)}, func(t testing.TB, root *clientv3.Client) {
			if _, err := root.RoleGrantPermission(within(t, patience), "locks", "x", "", clientv3.PermissionType(clientv3.PermRead)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartEtcd(t, servers.EtcdOptions{Password: rootPassword, Args: test.args})
			root := asRoot(t, server.Addr())
			addUser(t, root)
			near, s := opened(t, "root:"+rootPassword+"@"+server.Addr()), opened(t, "locks:PASSWORD@"+server.Addr())
			// A waiter keeps the stream open.
			long := request("long", true)
			must(t, near, request("long", false), 0)
			must(t, s, long, 1)
			l, err := s.lease(within(t, patience), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if alive, err := s.keepAlive(within(t, patience), l); !alive || err != nil { // makes a new login, which later calls use
				t.Fatal(alive, err)
			}
			test.over(t, root)
			handOff(t, near, s, "first")
			handOff(t, near, s, "second")
			if alive, err := s.keepAlive(within(t, patience), l); !alive || err != nil {
				t.Errorf("the keep-alive: %v, %v", alive, err)
			}
			must(t, s, long, 1)
		})
	}
}

func TestAuthenticationCanBeEnabledWhileLocksAreInUse(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	near := opened(t, "root:"+rootPassword+"@"+server.Addr())
	s := opened(t, "root:"+rootPassword+"@"+server.Addr())
	must(t, near, request("long", false), 0)
	long := request("long", true)
	must(t, s, long, 1)
	held := request("held", false)
	must(t, s, held, 0)
	renew := func() {
		t.Helper()
		out, err := s.Renew(within(t, patience), []store.Renewal{{Name: "held", ID: held.ID, TTL: held.TTL, Mode: held.Mode}})
		if err != nil || out[0].Status != store.Extended {
			t.Fatalf("the renewal: %+v, %v", out, err)
		}
	}
	renew()
	server.EnableAuth(rootPassword)
	renew()
	handOff(t, near, s, "a")
	must(t, s, long, 1)
}

func TestAWaiterWhoseRightsAreRevokedGetsAnError(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{Password: rootPassword})
	root := asRoot(t, server.Addr())
	addUser(t, root)
	near := opened(t, "root:"+rootPassword+"@"+server.Addr())
	must(t, near, request("a", false), 0)
	c := client(t, time.Minute, "locks:PASSWORD@"+server.Addr())
	waiter := lock(c, context.Background(), "a")
	waiting(t, near, "a", 1)
	if _, err := root.UserRevokeRole(within(t, patience), "locks", "locks"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-waiter:
		if got.err == nil || !strings.Contains(got.err.Error(), "give it the rights") || strings.Contains(got.err.Error(), "PASSWORD") || !errors.Is(got.err, holdfast.ErrUnavailable) {
			t.Errorf("the waiter: %v", got.err)
		}
	case <-time.After(patience):
		t.Error("the waiter is not told")
	}
}
