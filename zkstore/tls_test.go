package zkstore

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// serveTLS accepts TLS connections and forwards their content to a server.
func serveTLS(t *testing.T, server string, certs *servers.Certificates) (addr string) {
	t.Helper()
	config := certs.Config.Clone()
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, config.RootCAs
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				in.Close()
				continue
			}
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return listener.Addr().String()
}

func TestAStoreSpeaksTLSAndChecksTheServer(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Parallel()
	certs := servers.NewCertificates(t)
	url := "zks://" + serveTLS(t, server.Addr(), certs) + "/tls?cert=" + certs.CertFile + "&key=" + certs.KeyFile
	ctx := within(t)
	suites.URLWorks(t, url+"&ca="+certs.CAFile)
	short, cancel := context.WithTimeout(ctx, 5*time.Second) // a busy machine needs some time for the handshake
	defer cancel()
	if _, err := store.Open(short, url); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v, want an error about the certificate", err)
	}
	if _, err := store.Open(ctx, url+"&ca=/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("without a file: %v", err)
	}
}
