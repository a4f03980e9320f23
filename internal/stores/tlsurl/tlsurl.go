// Package tlsurl reads TLS settings from the parameters of a store's URL.
package tlsurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

// Params are the parameters of a URL with TLS: PEM files of the authority's certificates, the client's
// certificate and its key, and the name in the server's certificate.
var Params = []string{"ca", "cert", "key", "servername"}

// A Source reads the files in a URL again for each connection, so that certificates can be replaced.
// While they cannot be used, such as when only some of them have been replaced, it returns the last
// usable settings.
type Source struct {
	url  *store.URL
	mu   sync.Mutex
	last *tls.Config
}

// NewSource returns a source for a URL, or an error if its files cannot be used.
func NewSource(u *store.URL) (*Source, error) {
	config, err := Config(u)
	return &Source{url: u, last: config}, err
}

// Config returns the settings for a new connection.
func (s *Source) Config() *tls.Config {
	config, err := Config(s.url)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.last = config
	}
	return s.last.Clone()
}

// Config reads the files in a URL. The client's certificate is read again for each connection. While it
// cannot be used, the last usable one is presented.
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
		return nil, errors.New("want both cert and key, or neither")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		last := &pair
		var mu sync.Mutex
		config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			mu.Lock()
			defer mu.Unlock()
			if next, err := tls.LoadX509KeyPair(cert, key); err == nil {
				last = &next
			}
			if info.SupportsCertificate(last) != nil {
				return new(tls.Certificate), nil // presents none, as without this function
			}
			return last, nil
		}
	}
	return config, nil
}
