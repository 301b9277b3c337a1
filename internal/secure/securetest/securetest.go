// Package securetest makes certificates for tests of TLS between hosts.
package securetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority issues certificates. One goroutine may use it.
type Authority struct {
	Dir   string         // where its files are
	Curve elliptic.Curve // of the keys of what it issues; P-256 at first

	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an Authority whose files end with the test.
func New(t *testing.T) *Authority {
	a := &Authority{t: t, Dir: t.TempDir(), Curve: elliptic.P256()}
	a.key = a.newKey()
	a.cert = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, &a.key.PublicKey)
	a.write("roots.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// ThisHost is the setting of TLS by files that suit this host.
func ThisHost(t *testing.T) string {
	a := New(t)
	return a.Issue("rank", HostCertificate(t), a)
}

// HostCertificate is one for this host, to be issued.
func HostCertificate(t *testing.T) *x509.Certificate {
	host, err := os.Hostname()
	require.NoError(t, err)
	return &x509.Certificate{DNSNames: []string{host}}
}

// Issue issues a certificate as c says, for an hour, for servers and clients unless c says
// otherwise. It returns the setting of TLS by it, with the roots of an Authority.
func (a *Authority) Issue(name string, c *x509.Certificate, roots *Authority) string {
	key := a.newKey()
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return strings.Join([]string{a.write(name+".pem", "CERTIFICATE", a.sign(c, &key.PublicKey).Raw),
		a.write(name+"-key.pem", "PRIVATE KEY", der), filepath.Join(roots.Dir, "roots.pem")}, ",")
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(a.Curve, rand.Reader)
	require.NoError(a.t, err)
	return key
}

func (a *Authority) sign(c *x509.Certificate, public any) *x509.Certificate {
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, a.key)
	require.NoError(a.t, err)
	out, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return out
}

func (a *Authority) write(name, kind string, der []byte) string {
	name = filepath.Join(a.Dir, name)
	require.NoError(a.t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return name
}
