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
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestErrorsOfOpenSayWhatIsWrongWithoutThePassword(t *testing.T) {
	const refused = "refused" // no server listens, and the URL is valid
	for url, says := range map[string]string{
		"mysql://u:sEcReT@h":                    "mysql://USER:PASSWORD@HOST:3306/DATABASE",
		"mysql://u:sEcReT@h/a/b":                "mysql://USER:PASSWORD@HOST:3306/DATABASE",
		"mysql://u:sEcReT@h,i/db":               "one host",
		"mysql://u:sEcReT@h:99999/db":           "malformed host",
		"mysql://u:sEcReT@h/db?charset=latin1":  "unknown parameter",
		"mysql://u:sEcReT@h/db?create=maybe":    "want true or false",
		"mysql://u:sEcReT@h/db?tls=maybe":       "want true or false",
		"mysql://u:sEcReT@h/db?tls=false&ca=x":  "tls=false",
		"mysql://u:sEcReT@h/db?ca=/nonexistent": "no such file",
		"mysql://u:sEcReT@h/db?prefix=a%60b":    "letters, digits and underscores",
		// These are tried.
		strings.Replace(one.URL(one.Addr()), "test:test", "test:sEcReT", 1):    "check the user and the password",
		strings.Replace(one.URL(one.Addr()), "/locks", "/nowhere", 1):          "the database does not exist",
		strings.Replace(one.URL("127.0.0.1:1"), "test:test", "test:sEcReT", 1): refused,
	} {
		_, err := store.Open(limited(t), url)
		if err == nil || errors.Is(err, store.ErrInvalid) == (says == refused) ||
			!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("%s: %v, want an error that says %q and no password", url, err, says)
		}
	}
}

func TestOpenReturnsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and sends nothing
	must(t, err)
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

func TestAMissingPoolOrABadPrefixIsInvalid(t *testing.T) {
	nowhere := poolOf(t, "", func(c *mysql.Config) { c.Addr = "127.0.0.1:1" })
	_, err := New(nil)
	for _, err := range []error{err, Migrate(t.Context(), nil, ""), Migrate(t.Context(), nowhere, "a-b")} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
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
		must(t, err)
		defer s.Close()
		r := request(user)
		granted(t, s, r)
		suites.Extended(t, s, r)
		// On an application's pool, the application needs a connection too.
		pool := poolOf(t, database, func(c *mysql.Config) { c.User, c.Passwd = user, "sEcReT" })
		s.Close()
		eventually(t, "the server has closed the connections", func() bool { return pool.Ping() == nil })
		if _, err := New(pool); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "MAX_USER_CONNECTIONS") {
			t.Errorf("New with the limit %d: %v, want an ErrInvalid that names MAX_USER_CONNECTIONS", limit, err)
		}
	}
}
