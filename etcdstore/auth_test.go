package etcdstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

const rootPassword = "ROOT"

// asRoot returns a client with all rights.
func asRoot(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	return directAs(t, clientv3.Config{Endpoints: []string{addr}, Username: "root", Password: rootPassword})
}

// addUser creates a user with rights to a prefix.
func addUser(t testing.TB, root *clientv3.Client, name, prefix string, rights clientv3.PermissionType) {
	t.Helper()
	ctx := suites.Limited(t)
	_, err := root.RoleAdd(ctx, name)
	if err == nil {
		_, err = root.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), rights)
	}
	if err == nil {
		_, err = root.UserAdd(ctx, name, "PASSWORD")
	}
	if err == nil {
		_, err = root.UserGrantRole(ctx, name, name)
	}
	noError(t, err)
}

// addLocks creates the user "locks" with the documented rights.
func addLocks(t testing.TB, root *clientv3.Client) {
	t.Helper()
	addUser(t, root, "locks", documentedRights(t), clientv3.PermissionType(clientv3.PermReadWrite))
}

// handOff passes a name from one store to a waiter of another. Only a wake-up can end the Wait of
// that waiter.
func handOff(t testing.TB, from, to *Store, name string) {
	t.Helper()
	holder, waiter := suites.Request(name), suites.Queued(name)
	must(t, from, holder, 0)
	must(t, to, waiter, 1)
	suites.Release(t, from, holder)
	for answer := (store.Answer{Refusal: new(store.Refusal)}); !answer.Granted(); {
		err := to.Wait(within(t, patience/2), name, waiter.ID)
		if err == nil {
			answer, err = to.Acquire(suites.Limited(t), waiter)
		}
		if err != nil {
			t.Fatalf("the waiter is not woken: %v", err)
		}
	}
	suites.Release(t, to, waiter)
}

// jwt returns the argument for signed tokens, which expire after a fixed time.
func jwt(t testing.TB, ttl time.Duration) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	noError(t, os.WriteFile(secret, []byte("a secret for the signatures of one test"), 0o600))
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
			_, err := root.UserChangePassword(suites.Limited(t), "locks", "PASSWORD")
			noError(t, err)
		}},
		"a role changes, with signed tokens": {[]string{jwt(t, time.Hour)}, func(t testing.TB, root *clientv3.Client) {
			_, err := root.RoleGrantPermission(suites.Limited(t), "locks", "x", "", clientv3.PermissionType(clientv3.PermRead))
			noError(t, err)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartEtcd(t, servers.EtcdOptions{Password: rootPassword, Args: test.args})
			root := asRoot(t, server.Addr())
			addLocks(t, root)
			near, s := opened(t, "root:"+rootPassword+"@"+server.Addr()), opened(t, "locks:PASSWORD@"+server.Addr())
			// A waiter keeps the stream open.
			long := suites.Queued("long")
			must(t, near, suites.Request("long"), 0)
			must(t, s, long, 1)
			l := leased(t, s, time.Minute)
			keptAlive(t, s, l) // makes a new login, which later calls use
			test.over(t, root)
			handOff(t, near, s, "first")
			handOff(t, near, s, "second")
			keptAlive(t, s, l)
			must(t, s, long, 1)
		})
	}
}

func TestAuthenticationCanBeEnabledWhileLocksAreInUse(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	near := opened(t, "root:"+rootPassword+"@"+server.Addr())
	s := opened(t, "root:"+rootPassword+"@"+server.Addr())
	must(t, near, suites.Request("long"), 0)
	long := suites.Queued("long")
	must(t, s, long, 1)
	held := suites.Request("held")
	must(t, s, held, 0)
	suites.Extended(t, s, held)
	server.EnableAuth(rootPassword)
	suites.Extended(t, s, held)
	handOff(t, near, s, "a")
	must(t, s, long, 1)
}

func TestAWaiterWhoseRightsAreRevokedGetsAnError(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{Password: rootPassword})
	root := asRoot(t, server.Addr())
	addLocks(t, root)
	near := opened(t, "root:"+rootPassword+"@"+server.Addr())
	must(t, near, suites.Request("a"), 0)
	waiter := lock(suites.Client(t, opened(t, "locks:PASSWORD@"+server.Addr())), "a")
	waiting(t, near, "a", 1)
	_, err := root.UserRevokeRole(suites.Limited(t), "locks", "locks")
	noError(t, err)
	select {
	case err := <-waiter:
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "give it the rights") || strings.Contains(err.Error(), "PASSWORD") {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(patience):
		t.Error("the waiter is not told")
	}
}
