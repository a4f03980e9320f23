package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestOpenRefusesMalformedURLsAndSaysWhatToWrite(t *testing.T) {
	for _, test := range []struct{ url, says string }{
		{"mysql://u:sEcReT@h", "mysql://USER:PASSWORD@HOST:3306/DATABASE"},
		{"mysql://u:sEcReT@h/a/b", "mysql://USER:PASSWORD@HOST:3306/DATABASE"},
		{"mysql://u:sEcReT@h,i/db", "one host"},
		{"mysql://u:sEcReT@h:99999/db", "malformed host"},
		{"mysql://u:sEcReT@h/db?charset=latin1", "unknown parameter"},
		{"mysql://u:sEcReT@h/db?create=maybe", "want true or false"},
		{"mysql://u:sEcReT@h/db?tls=maybe", "want true or false"},
		{"mysql://u:sEcReT@h/db?tls=false&ca=x", "tls=false"},
		{"mysql://u:sEcReT@h/db?ca=/nonexistent", "no such file"},
		{"mysql://u:sEcReT@h/db?prefix=a%60b", "letters, digits and underscores"},
	} {
		_, err := store.Open(t.Context(), test.url)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("%s: %v, want an ErrInvalid that says %q and no password", test.url, err, test.says)
		}
	}
}

func TestOpenTellsCausesApart(t *testing.T) {
	for _, test := range []struct {
		what, url, says string
		invalid         bool
	}{
		{"wrong password", strings.Replace(one.URL(one.Addr()), "test:test", "test:sEcReT", 1), "check the user and the password", true},
		{"no such database", strings.Replace(one.URL(one.Addr()), "/locks", "/nowhere", 1), "the database does not exist", true},
		{"nobody listens", strings.Replace(one.URL("127.0.0.1:1"), "test:test", "test:sEcReT", 1), "refused", false},
	} {
		_, err := store.Open(limited(t), test.url)
		if err == nil || errors.Is(err, store.ErrInvalid) != test.invalid || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("%s: %v, want an error that says %q and no password; ErrInvalid: %t", test.what, err, test.says, test.invalid)
		}
	}
}

func TestOpenReturnsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = store.Open(ctx, one.URL(silent.Addr().String()))
	if took := time.Since(begin); err == nil || took > 3*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func TestAnEncryptedConnectionChecksTheServersCertificate(t *testing.T) {
	certs := servers.NewCertificates(t)
	server := servers.StartMariaDB(t, servers.MariaDBOptions{TLS: certs, Config: []string{"--require-secure-transport=ON"}})
	base := server.URL(server.Addr())
	good := openStore(t, base+"?ca="+url.QueryEscape(certs.CAFile))
	req := request("secure")
	granted(t, good, req)
	release(t, good, req)
	for what, bad := range map[string]string{
		"no TLS":                base,
		"unknown authority":     base + "?tls=true",
		"another server's name": base + "?servername=other&ca=" + url.QueryEscape(certs.CAFile),
	} {
		if s, err := store.Open(limited(t), bad); err == nil {
			s.Close()
			t.Errorf("%s: opened", what)
		}
	}
}

func TestAMissingPoolIsInvalid(t *testing.T) {
	if _, err := New(nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("New: %v, want ErrInvalid", err)
	}
	if err := Migrate(t.Context(), nil, ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Migrate: %v, want ErrInvalid", err)
	}
}

func TestMigrateChecksThePrefixBeforeItConnects(t *testing.T) {
	nowhere := poolOf(t, "", func(c *mysql.Config) { c.Addr = "127.0.0.1:1" })
	if err := Migrate(t.Context(), nowhere, "a-b"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// A store that can open one connection only grants names and does not renew them.
func TestAUserWithTooFewConnectionsIsRefused(t *testing.T) {
	admin := connectTo(t, nil)
	newIn(t, admin)
	database := databaseOf(t, admin)
	for limit, fits := range map[int]bool{1: false, 2: true} {
		user := fmt.Sprint("limited", limit)
		mustExec(t, admin, fmt.Sprintf("CREATE USER %s IDENTIFIED BY 'sEcReT' WITH MAX_USER_CONNECTIONS %d", user, limit), "GRANT ALL ON "+database+".* TO "+user)
		t.Cleanup(func() { mustExec(t, admin, "DROP USER "+user) })
		url := strings.Replace(urlIn(database, one.Addr()), "test:test", user+":sEcReT", 1)
		s, err := store.Open(limited(t), url)
		if !fits {
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "MAX_USER_CONNECTIONS") || strings.Contains(err.Error(), "sEcReT") {
				t.Errorf("limit %d: %v, want an ErrInvalid that names MAX_USER_CONNECTIONS", limit, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := request(user)
		granted(t, s, r)
		out, err := s.Renew(limited(t), []store.Renewal{renewal(r)})
		if err != nil || out[0].Status != store.Extended {
			t.Errorf("limit %d: %+v, %v", limit, out, err)
		}
		// On an application's pool, the application needs a connection too.
		pool := poolOf(t, database, func(c *mysql.Config) { c.User, c.Passwd = user, "sEcReT" })
		s.Close()
		eventually(t, "the server has closed the connections", func() bool { return pool.Ping() == nil })
		if _, err := New(pool); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "MAX_USER_CONNECTIONS") {
			t.Errorf("New with the limit %d: %v, want an ErrInvalid that names MAX_USER_CONNECTIONS", limit, err)
		}
	}
}
