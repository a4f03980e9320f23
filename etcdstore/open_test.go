package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestTLSWithCertificatesOnBothSides(t *testing.T) {
	t.Parallel()
	certificates := servers.NewCertificates(t)
	server := servers.StartEtcd(t, servers.EtcdOptions{TLS: certificates})
	files := fmt.Sprintf("ca=%s&cert=%s&key=%s", certificates.CAFile, certificates.CertFile, certificates.KeyFile)
	suites.URLWorks(t, "etcds://"+server.Addr()+"?"+files)
	suites.URLWorks(t, "etcds://"+server.Addr()+"/some/prefix?servername=localhost&"+files)

	for what, url := range map[string]string{
		"an unknown authority": "etcds://" + server.Addr(),
		"no certificate":       "etcds://" + server.Addr() + "?ca=" + certificates.CAFile,
		"a wrong name":         "etcds://" + server.Addr() + "?servername=other.example&" + files,
		"no TLS":               "etcd://" + server.Addr(),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if c, err := holdfast.Open(ctx, url); err == nil {
			c.Close()
			t.Errorf("%s is accepted", what)
		}
		cancel()
	}
}

// Some programs run for longer than their certificates are valid.
func TestCertificatesAreReadAgainForEachConnection(t *testing.T) {
	t.Parallel()
	old, renewed := servers.NewCertificates(t), servers.NewCertificates(t) // of another authority
	server := servers.StartEtcd(t, servers.EtcdOptions{TLS: old})
	replace := func(from *servers.Certificates, ca, cert, key string) {
		t.Helper()
		for to, from := range map[string]string{ca: from.CAFile, cert: from.CertFile, key: from.KeyFile} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			noError(t, err)
		}
	}
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	replace(old, ca, cert, key)
	s := openQuick(t, fmt.Sprintf("etcds://%s?ca=%s&cert=%s&key=%s", server.Addr(), ca, cert, key), slowBeat)
	req := suites.Request("a")
	token := must(t, s, req, 0).Token
	replace(renewed, ca, cert, key)
	replace(renewed, old.CAFile, old.CertFile, old.KeyFile)
	old.Config = renewed.Config
	server.Restart()
	answer := eventually(t, func(ctx context.Context) (store.Answer, error) { return s.Acquire(ctx, req) })
	if answer.Token != token {
		t.Errorf("token %d, was %d", answer.Token, token)
	}
}

// The commands of the package documentation are sufficient, and give no rights to other keys.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{Password: rootPassword})
	addLocks(t, asRoot(t, server.Addr()))
	suites.URLWorks(t, "etcd://locks:PASSWORD@"+server.Addr())

	_, err := holdfast.Open(t.Context(), "etcd://locks:secret@"+server.Addr())
	if !errors.Is(err, holdfast.ErrInvalid) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "check the user and the password") {
		t.Errorf("wrong password: %v", err)
	}
	_, err = holdfast.Open(t.Context(), "etcd://locks:PASSWORD@"+server.Addr()+"/other")
	if err == nil || !strings.Contains(err.Error(), "give it the rights") || strings.Contains(err.Error(), "PASSWORD") {
		t.Errorf("a user without rights: %v", err)
	}
	_, err = holdfast.Open(t.Context(), "etcd://"+server.Addr())
	if err == nil || !strings.Contains(err.Error(), "user and the password") {
		t.Errorf("nobody: %v", err)
	}
}

// documentedRights reads the prefix that the package documentation grants.
func documentedRights(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	noError(t, err)
	_, rest, ok := strings.Cut(string(text), "role grant-permission --prefix locks readwrite ")
	if !ok {
		t.Fatal("no rights in doc.go")
	}
	prefix, _, _ := strings.Cut(rest, "\n")
	return prefix
}

func TestInvalidURLsAreRefusedBeforeDialing(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"etcd:":                        "no host",
		"etcd://":                      "no host",
		"etcd://a?ca=file":             "unknown parameter",
		"etcd://a?secret=secret1":      "unknown parameter",
		"etcd://user@a":                "both user and password",
		"etcd://:secret1@a":            "both user and password",
		"etcd://a/x%09y":               "control characters",
		"etcds://a?ca=/does/not/exist": "no such file",
		"etcds://a?ca=doc.go":          "no certificate",
		"etcds://a?cert=doc.go":        "both cert and key",
	} {
		_, err := holdfast.Open(t.Context(), url)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(fmt.Sprint(err), says) || strings.Contains(fmt.Sprint(err), "secret1") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOpenReturnsSoonIfThereIsNoServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never replies
	noError(t, err)
	defer silent.Close()
	for _, login := range []string{"", "user:secret@"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := store.Open(ctx, "etcd://"+login+silent.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent server: %v", err)
		}
		cancel()
		if _, err := store.Open(t.Context(), "etcd://"+login+"127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "no server answers") {
			t.Errorf("no server: %v", err)
		}
	}
}

// The store would write its keys outside of the namespace.
func TestNewRefusesANamespacedClient(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	noError(t, err)
	defer client.Close()
	kv, lease, watcher := client.KV, client.Lease, client.Watcher
	for part, replace := range map[string]func(){
		"KV":      func() { client.KV = namespace.NewKV(kv, "app/") },
		"Lease":   func() { client.Lease = namespace.NewLease(lease, "app/") },
		"Watcher": func() { client.Watcher = namespace.NewWatcher(watcher, "app/") },
	} {
		replace()
		if _, err := New(client); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "client."+part) || !strings.Contains(err.Error(), "Prefix") {
			t.Errorf("%s: error %v, want an ErrInvalid that names it and the option Prefix", part, err)
		}
		client.KV, client.Lease, client.Watcher = kv, lease, watcher
	}
	s, err := New(client)
	noError(t, err)
	s.Close()
}

func TestNewUsesTheClientOfTheProgramAndDoesNotCloseIt(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	client := direct(t, server.Addr())
	one, err := New(client)
	noError(t, err)
	two, err := New(client, Prefix("/other/"))
	noError(t, err)
	for _, mistake := range []func() (*Store, error){
		func() (*Store, error) { return New(nil) },
		func() (*Store, error) { return New(client, Prefix("a\nb")) },
	} {
		if _, err := mistake(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	must(t, one, suites.Request("a"), 0)
	must(t, two, suites.Request("a"), 0) // the prefixes keep them apart
	for _, key := range []string{"holdfast/lock/a", "other/lock/a"} {
		resp, err := client.Get(t.Context(), key, clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 1 {
			t.Errorf("%s: %v, error %v", key, resp, err)
		}
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Get(t.Context(), "a"); err != nil {
		t.Errorf("the client was closed: %v", err)
	}
	two.Close()
}
