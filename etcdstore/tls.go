package etcdstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-lock/holdfast/store"
)

// fileCredentials read the certificates of a URL anew for each connection, so that certificates
// can be replaced while a program runs. While the files cannot be used, because only some of
// them have been replaced yet, the last usable ones are.
type fileCredentials struct {
	credentials.TransportCredentials // everything but the handshake

	name          string // in the servers' certificates; if empty, their address
	ca, cert, key string // files; empty if not given

	mu   sync.Mutex
	last *tls.Config
}

func newFileCredentials(u *store.URL) (*fileCredentials, error) {
	c := &fileCredentials{
		name: u.Query.Get(paramName), ca: u.Query.Get(paramCA), cert: u.Query.Get(paramCert), key: u.Query.Get(paramKey),
	}
	if (c.cert == "") != (c.key == "") {
		return nil, errors.New("give both cert and key, or none")
	}
	var err error
	if c.last, err = c.read(); err != nil {
		return nil, err
	}
	c.TransportCredentials = credentials.NewTLS(c.last)
	return c, nil
}

// ClientHandshake wants the server to have a certificate for the name, if there is one, or for
// its address, which is what the client library passes as authority.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.name != "" {
		authority = c.name
	}
	return credentials.NewTLS(c.current()).ClientHandshake(ctx, authority, conn)
}

// Clone returns c, which can be used by several connections.
func (c *fileCredentials) Clone() credentials.TransportCredentials { return c }

// current reads the files, or returns what was last read.
func (c *fileCredentials) current() *tls.Config {
	config, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = config
	}
	return c.last
}

func (c *fileCredentials) read() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s=%s: no certificate in it", paramCA, c.ca)
		}
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
