package etcdstore

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/store"
)

// fileCredentials reads the certificate files of a URL again for each connection.
type fileCredentials struct {
	credentials.TransportCredentials // everything but the handshake
	files                            *tlsurl.Source
}

func newFileCredentials(u *store.URL) (*fileCredentials, error) {
	files, err := tlsurl.NewSource(u)
	if err != nil {
		return nil, err
	}
	return &fileCredentials{credentials.NewTLS(files.Config()), files}, nil
}

// ClientHandshake requires a certificate for the name in the URL, or else for the server's
// address, which the client library passes as authority.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := c.files.Config()
	if config.ServerName != "" { // the library would replace it by the authority
		authority = config.ServerName
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone returns c, which can be used by several connections.
func (c *fileCredentials) Clone() credentials.TransportCredentials { return c }
