package servers

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are a certificate authority for one test, and a certificate for 127.0.0.1 and
// localhost signed by it. Servers and clients can use both.
type Certificates struct {
	CAFile, CertFile, KeyFile string

	// Config is for clients: it trusts the authority and presents the certificate on request.
	Config *tls.Config
}

// NewCertificates creates an authority and a certificate.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("certificates: %v", err)
		}
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}

	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	caDER := sign(t, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority of a test"},
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil, caKey.Public(), caKey)
	ca, err := x509.ParseCertificate(caDER)
	must(err)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	der := sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "127.0.0.1"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), caKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)

	c := &Certificates{
		CAFile:   write("ca.pem", "CERTIFICATE", caDER),
		CertFile: write("cert.pem", "CERTIFICATE", der),
		KeyFile:  write("key.pem", "PRIVATE KEY", keyDER),
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	c.Config = &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	return c
}

// sign creates a certificate that is valid for a day. Without a parent it is self-signed.
func sign(t testing.TB, cert, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) []byte {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	cert.SerialNumber = serial
	cert.NotBefore = time.Now().Add(-time.Hour)
	cert.NotAfter = time.Now().Add(24 * time.Hour)
	if parent == nil {
		parent = cert
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, signer)
	if err != nil {
		t.Fatalf("certificates: %v", err)
	}
	return der
}
