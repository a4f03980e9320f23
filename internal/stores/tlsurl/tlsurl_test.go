package tlsurl_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"testing"

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
	presents := func(want *servers.Certificates) {
		t.Helper()
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		server := tls.Server(far, &tls.Config{
			Certificates: old.Config.Certificates, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		})
		done := make(chan error, 1)
		go func() { done <- tls.Client(near, config).HandshakeContext(t.Context()) }()
		must(server.HandshakeContext(t.Context()))
		must(<-done)
		if got := server.ConnectionState().PeerCertificates[0].Raw; !bytes.Equal(got, want.Config.Certificates[0].Certificate[0]) {
			t.Error("the client presents the other certificate")
		}
	}
	presents(old)
	must(os.Rename(renewed.CertFile, old.CertFile))
	presents(old) // the key does not fit yet
	must(os.Rename(renewed.KeyFile, old.KeyFile))
	presents(renewed)
}
