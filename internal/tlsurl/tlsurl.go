// Package tlsurl reads TLS settings from the parameters of a store's URL.
package tlsurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-lock/holdfast/store"
)

// Params are the parameters of a URL with TLS: the authority's certificates, the client's
// certificate and its key, as PEM files, and the name in the server's certificate.
var Params = []string{"ca", "cert", "key", "servername"}

// Config reads the files that a URL names. A store that calls it for every connection lets
// certificates be replaced while it runs.
func Config(u *store.URL) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Query.Get("servername")}
	if file := u.Query.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca=%s: no certificate in it", file)
		}
	}
	cert, key := u.Query.Get("cert"), u.Query.Get("key")
	if (cert == "") != (key == "") {
		return nil, errors.New("give both cert and key, or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
