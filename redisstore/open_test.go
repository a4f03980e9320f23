package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestTLSWithCertificatesOnBothSides(t *testing.T) {
	certificates := servers.NewCertificates(t)
	server := servers.StartRedis(t, servers.RedisOptions{TLS: certificates})
	files := fmt.Sprintf("ca=%s&cert=%s&key=%s", certificates.CAFile, certificates.CertFile, certificates.KeyFile)
	suites.URLWorks(t, "rediss://"+server.Addr()+"?"+files)
	suites.URLWorks(t, "rediss://"+server.Addr()+"?servername=localhost&"+files)

	for what, url := range map[string]string{
		"an unknown authority": "rediss://" + server.Addr(),
		"a wrong name":         "rediss://" + server.Addr() + "?servername=other.example&" + files,
		"no TLS":               "redis://" + server.Addr(),
	} {
		if c, err := holdfast.Open(t.Context(), url); err == nil {
			c.Close()
			t.Errorf("%s is accepted", what)
		}
	}
}

// The package documentation lists the rights. CONFIG, FUNCTION and CLIENT are not among them.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{ACL: []string{"user default off", "user " + documentedACL(t) + " +wait"}})
	server.Must("FLUSHALL")
	suites.URLWorks(t, "redis://locks:PASSWORD@"+server.Addr()+"/1")
	if left := server.Must("ACL", "LOG").([]any); len(left) > 0 {
		t.Errorf("the server refused something: %v", left)
	}
	suites.URLWorks(t, "redis://locks:PASSWORD@"+server.Addr())

	_, err := holdfast.Open(t.Context(), "redis://locks:secret@"+server.Addr())
	if !errors.Is(err, holdfast.ErrInvalid) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "check the user and the password") {
		t.Errorf("wrong password: %v", err)
	}
}

// A server redirects clients while a slot moves.
func TestTheDocumentedRightsAreEnoughWhileASlotMoves(t *testing.T) {
	acl := documentedACL(t) + documentedRights(t, "Add ", "CONFIG")
	cluster := servers.StartCluster(t, servers.RedisOptions{InMemory: true, ACL: []string{"user " + acl}})
	for i := range 2 {
		url := fmt.Sprintf("redis+cluster://locks:PASSWORD@%s?replicas=%d", strings.Join(cluster.Addrs(), ","), i)
		s, req := openURL(t, url), suites.Request(fmt.Sprint("n", i))
		suites.Granted(t, s, req)
		moveKeys, finish := cluster.MoveSlot(redistest.ClusterLockKey(req.Name))
		moveKeys()
		suites.Extended(t, s, req)
		finish()
	}
}

// documentedACL returns the arguments of ACL SETUSER in the package documentation.
func documentedACL(t *testing.T) string {
	text, err := os.ReadFile("doc.go")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "ACL SETUSER ")
	line, _, ok := strings.Cut(rest, "//\n")
	if !ok {
		t.Fatal("no ACL SETUSER in doc.go")
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(line, "//", "")), " ")
}

func TestAnErrorForLackOfRightsSaysWhereTheyAreListed(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{ACL: []string{"user poor on >PASSWORD ~* &* +ping +hello +evalsha +eval"}})
	c, err := holdfast.Open(t.Context(), "redis://poor:PASSWORD@"+server.Addr())
	must(t, err)
	defer c.Close()
	_, err = c.TryLock(t.Context(), "a")
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "give it the rights") || strings.Contains(err.Error(), "PASSWORD") {
		t.Errorf("error: %v", err)
	}
}

func TestInvalidURLsAreRefusedBeforeDialing(t *testing.T) {
	for url, says := range map[string]string{
		"redis:":                        "no host",
		"redis://":                      "no host",
		"redis://a,b":                   "redis+cluster://",
		"redis://a/x":                   "number of a database",
		"redis://a/-1":                  "number of a database",
		"redis://a?ca=file":             "unknown parameter",
		"redis://a?replicas=x":          "how many replicas",
		"redis://a?replicas=-1":         "how many replicas",
		"redis+sentinel://a":            "no master name",
		"redis+sentinel://a/m/x":        "number of a database",
		"redis+cluster://a/1":           "one database",
		"rediss://a?ca=/does/not/exist": "no such file",
		"rediss://a?ca=doc.go":          "no certificate",
		"rediss://a?cert=doc.go":        "both cert and key",
		"redis+sentinel://a/m?sentinel-secret=secret1": "unknown parameter",
	} {
		_, err := holdfast.Open(t.Context(), url)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(fmt.Sprint(err), says) || strings.Contains(fmt.Sprint(err), "secret1") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOpenReturnsSoonIfThereIsNoServer(t *testing.T) {
	silent := listen(t) // accepts connections, and never replies
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	want(t, "a silent server", errOf(store.Open(ctx, "redis://"+silent.Addr().String())), context.DeadlineExceeded)
	if _, err := store.Open(t.Context(), "redis://:secret@127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
}

func TestSentinelWithAPassword(t *testing.T) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{Password: "PASSWORD"})
	suites.URLWorks(t, "redis+sentinel://:PASSWORD@"+group.Addrs()[0]+"/"+servers.SentinelName)
	suites.URLWorks(t, "redis+sentinel://:PASSWORD@"+group.Addrs()[0]+"/"+servers.SentinelName+"/3?replicas=1")
}

func TestSentinelsWithALoginOfTheirOwn(t *testing.T) {
	group := servers.StartSentinel(t, 0, 1, servers.RedisOptions{})
	url := "redis+sentinel://" + group.Addrs()[0] + "/" + servers.SentinelName
	group.Sentinels[0].Must("ACL", "SETUSER", "default", "resetpass", ">secret")
	for _, params := range []string{"", "?sentinel-password=wrong"} {
		_, err := store.Open(t.Context(), url+params)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "sentinel-password=") {
			t.Errorf("%s: %v, want ErrInvalid with the name of the parameter", params, err)
		}
	}
	suites.URLWorks(t, url+"?sentinel-password=secret")
}

func TestErrorsSayHowSentinelsAndClustersAreNamed(t *testing.T) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{})
	if _, err := store.Open(t.Context(), "redis+sentinel://"+group.Addrs()[0]+"/another"); err == nil || !strings.Contains(err.Error(), "sentinel monitor") {
		t.Errorf("an unknown master: %v", err)
	}
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	for addr, says := range map[string]string{
		group.Addrs()[0]:   "write redis+sentinel://",
		cluster.Addrs()[0]: "write redis+cluster:// instead of redis://",
	} {
		s, req := openURL(t, "redis://"+addr), suites.Request("n")
		_, acquire := s.Acquire(t.Context(), req)
		_, renew := s.Renew(t.Context(), []store.Renewal{suites.Renewal(req)})
		for call, err := range map[string]error{"Acquire": acquire, "Renew": renew, "Release": s.Release(t.Context(), req.Name, req.ID, store.Keep{})} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want an error that says %q", call, err, says)
			}
		}
	}
}

func TestOpenSaysWhatToWriteForAnotherKindOfServer(t *testing.T) {
	redis := servers.StartRedis(t, servers.RedisOptions{})
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	for url, says := range map[string]string{
		"rediss://" + redis.Addr():                              "write redis:// instead of rediss://",
		"redis://" + strings.TrimPrefix(web.URL, "http://"):     "looks like an HTTP server",
		"redis://" + strings.TrimPrefix(secure.URL, "https://"): "write rediss:// instead of redis://",
		"redis+sentinel://" + redis.Addr() + "/mymaster":        "not a Sentinel: write redis://HOST:PORT",
		"redis+cluster://" + redis.Addr():                       "not a Cluster: write redis://",
	} {
		_, err := store.Open(t.Context(), url)
		mayEnd := strings.Contains(says, "rediss://") // such an error may end by itself
		if err == nil || errors.Is(err, store.ErrInvalid) == mayEnd || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%q): %v, want an error that says %q", url, err, says)
		}
	}
}
