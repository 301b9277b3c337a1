// Package secure has TLS between the hosts of a job: how users ask for it, and the handshake by
// which two ranks get a connection that both know to lead to the other. What comes after that is
// the caller's: the rendezvous goes on in the TLS connection, the tcp wire takes keys from it and
// seals its packets by itself (package seal).
//
// The handshake is TLS 1.3 by crypto/tls, and three short messages in it: by the TLS exporter both
// ends prove that they have the job's secret, see the same TLS session and mean the same two ends,
// so that nobody stands between them (RFC 9266). With certificates of the user's each end also
// checks the other's. It runs on connections that are authenticated by the secret already: TLS code
// meets no strangers but who stands between the ends. Who listens learns what was said before that:
// ranks, and their addresses.
//
// Concurrency: a Layer is constant, any goroutine may use it.
package secure

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// Kinds of a Setting: all ranks of a job must have the same.
const (
	Off    = "off"
	Secret = "secret"
	Files  = "files"
)

// Setting is how a user asks for TLS. The zero value is off.
type Setting struct{ cert, key, roots string }

// bySecret is the Setting that needs no files.
var bySecret = Setting{cert: Secret}

// Allowed says what Parse takes.
const Allowed = "give off, secret, or three PEM files as CERTIFICATE,KEY,ROOTS"

// Parse reads a Setting: off (or nothing), secret, or the names of three files.
func Parse(text string) (Setting, error) {
	switch text {
	case "", Off:
		return Setting{}, nil
	case Secret:
		return bySecret, nil
	}
	names := strings.Split(text, ",")
	if len(names) != 3 || names[0] == "" || names[1] == "" || names[2] == "" {
		return Setting{}, errors.New(Allowed)
	}
	return Setting{names[0], names[1], names[2]}, nil
}

// Kind is off, secret or files.
func (s Setting) Kind() string {
	switch s {
	case Setting{}:
		return Off
	case bySecret:
		return Secret
	}
	return Files
}

// Load makes the Layer of a Setting; nil: off. It reads the files, and tries the certificate.
func (s Setting) Load() (*Layer, error) {
	if s.Kind() == Off {
		return nil, nil
	}
	if fips140.Enforced() {
		return nil, errors.New("GODEBUG=fips140=only does not allow AES-GCM with numbered nonces, which packets between hosts need: " +
			"use TLS off, and a private network or a tunnel between the hosts")
	}
	if s.Kind() == Secret {
		cert, err := selfSigned()
		return &Layer{kind: Secret, cert: cert}, err
	}
	l, err := s.read()
	if err != nil {
		return nil, err
	}
	if err := l.try(); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.cert, s.key, err)
	}
	return l, nil
}

// KeyFile is the name of the private key's file, of kind Files.
func (s Setting) KeyFile() string { return s.key }

// read makes a Layer of the files.
func (s Setting) read() (*Layer, error) {
	l := &Layer{kind: Files}
	var err error
	if l.cert, err = tls.LoadX509KeyPair(s.cert, s.key); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.cert, s.key, err)
	}
	if l.cert.Leaf, err = x509.ParseCertificate(l.cert.Certificate[0]); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", s.cert, err) // GODEBUG=x509keypairleaf=0 leaves it out
	}
	pem, err := os.ReadFile(s.roots)
	if err != nil {
		return nil, fmt.Errorf("roots: %w", err)
	}
	l.roots = x509.NewCertPool()
	if !l.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("roots: %s has no certificate in PEM form", s.roots)
	}
	return l, nil
}

// try has two ends speak TLS with the certificate, which then will do at all; of whether the other
// ranks take it, it tells only that it has expired.
func (l *Layer) try() error {
	if c, now := l.cert.Leaf, time.Now(); now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return fmt.Errorf("it is valid from %v to %v only: renew it", c.NotBefore, c.NotAfter)
	}
	a, b := net.Pipe()
	dialler := make(chan error, 1)
	shake := func(conn net.Conn, end End) error {
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second)) // a Pipe has no buffer: both may write
		return l.begin(conn, end).conn.Handshake()
	}
	go func() { dialler <- shake(a, End{Dialler: true}) }()
	err := shake(b, End{})
	if err = cmp.Or(err, <-dialler); err != nil {
		return fmt.Errorf("it cannot be used for TLS 1.3: %w", err)
	}
	return nil
}

// selfSigned makes a certificate with which TLS can be spoken, and that nobody trusts: the exporter
// and the secret say who is there.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
