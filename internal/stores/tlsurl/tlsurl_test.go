package tlsurl_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// Some programs run for longer than their certificates are valid.
func TestTheClientsCertificateIsReadAgainForEachConnection(t *testing.T) {
	old, renewed := servers.NewCertificates(t), servers.NewCertificates(t)
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	u, err := store.ParseURL(fmt.Sprintf("mysql://localhost/db?ca=%s&cert=%s&key=%s&servername=localhost", old.CAFile, old.CertFile, old.KeyFile))
	must(err)
	config, err := tlsurl.Config(u)
	must(err)
	server := &tls.Config{
		Certificates: old.Config.Certificates, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
	}
	presents := func(want ...*servers.Certificates) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		conn := tls.Server(far, server)
		done := make(chan error, 1)
		go func() { done <- tls.Client(near, config).HandshakeContext(ctx) }()
		must(conn.HandshakeContext(ctx))
		must(<-done)
		got := conn.ConnectionState().PeerCertificates
		if !slices.EqualFunc(got, want, func(c *x509.Certificate, w *servers.Certificates) bool {
			return bytes.Equal(c.Raw, w.Config.Certificates[0].Certificate[0])
		}) {
			t.Errorf("the client presents another certificate, or none: %d", len(got))
		}
	}
	presents(old)
	must(os.Rename(renewed.CertFile, old.CertFile))
	presents(old) // the key does not fit yet
	must(os.Rename(renewed.KeyFile, old.KeyFile))
	presents(renewed)
	must(os.Rename(servers.NewCertificates(t).CertFile, old.CertFile))
	presents(renewed) // the key does not fit any more

	// A certificate that the server does not accept is not presented: the server may also do without.
	server.ClientAuth, server.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	server.ClientCAs.AddCert(&x509.Certificate{RawSubject: []byte("another authority")})
	presents()
}
