package mysqlstore

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestOpenRefusesMalformedURLsAndSaysWhatToWrite(t *testing.T) {
	for _, test := range []struct{ url, says string }{
		{"mysql://u:sEcReT@h", "mysql://USER:PASSWORD@HOST:3306/DATABASE"},
		{"mysql://u:sEcReT@h/a/b", "mysql://USER:PASSWORD@HOST:3306/DATABASE"},
		{"mysql://u:sEcReT@h,i/db", "one host"},
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
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, test := range []struct {
		what, url, says string
		invalid         bool
	}{
		{"wrong password", strings.Replace(one.URL(one.Addr()), "test:test", "test:sEcReT", 1), "check the user and the password", true},
		{"no such database", strings.Replace(one.URL(one.Addr()), "/locks", "/nowhere", 1), "the database does not exist", true},
		{"nobody listens", strings.Replace(one.URL(closed.Addr().String()), "test:test", "test:sEcReT", 1), "refused", false},
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
