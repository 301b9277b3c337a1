package secure

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/secure/securetest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestParse(t *testing.T) {
	for text, kind := range map[string]string{"": Off, "off": Off, "secret": Secret, "a,b,c": Files} {
		s, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, kind, s.Kind(), text)
	}
	for _, text := range []string{"on", "secret,", "a,b", "a,,c", "a,b,c,d", " secret"} {
		_, err := Parse(text)
		require.EqualError(t, err, Allowed, text)
	}
	l, err := Setting{}.Load()
	require.NoError(t, err)
	require.Nil(t, l)
	require.Equal(t, Off, l.Kind())
}

// load loads a Setting.
func load(t *testing.T, text string) *Layer {
	s, err := Parse(text)
	require.NoError(t, err)
	l, err := s.Load()
	require.NoError(t, err)
	return l
}

// conns returns the two ends of a connection over loopback.
func conns(t *testing.T) (a, b net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	a, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	b, err = ln.Accept()
	require.NoError(t, err)
	for _, c := range []net.Conn{a, b} {
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(testlevel.Patience(20 * time.Second)))
	}
	return a, b
}

type outcome struct {
	s   *Session
	err error
}

// shake runs the handshake of two ends, each of which closes its connection if it fails.
func shake(a, b net.Conn, la, lb *Layer, ea, eb End) (x, y outcome) {
	done := make(chan outcome)
	end := func(conn net.Conn, l *Layer, e End) (o outcome) {
		if o.s, o.err = l.Handshake(conn, e); o.err != nil {
			_ = conn.Close()
		}
		return o
	}
	go func() { done <- end(b, lb, eb) }()
	x = end(a, la, ea)
	return x, <-done
}

var jobKey = []byte("the secret of the job, 32 bytes.")

func TestHandshake(t *testing.T) {
	a, b := conns(t)
	x, y := shake(a, b, load(t, Secret), load(t, Secret), End{Dialler: true, Key: jobKey}, End{Key: jobKey})
	require.NoError(t, x.err)
	require.NoError(t, y.err)
	require.Equal(t, x.s.Send, y.s.Receive)
	require.Equal(t, y.s.Send, x.s.Receive)
	require.NotEqual(t, x.s.Send, x.s.Receive)
	_, err := x.s.Conn.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(y.s.Conn, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}

// TestNothingIsReadAhead: what the peer sends right behind the handshake, outside TLS, stays in the
// connection.
func TestNothingIsReadAhead(t *testing.T) {
	for range 20 {
		a, b := conns(t)
		go func() {
			if _, err := load(t, Secret).Handshake(a, End{Dialler: true, Key: jobKey}); err == nil {
				_, _ = a.Write([]byte("not TLS"))
			}
		}()
		_, err := load(t, Secret).Handshake(b, End{Key: jobKey})
		require.NoError(t, err)
		got := make([]byte, 7)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		require.Equal(t, "not TLS", string(got))
	}
}

// TestSessionsDiffer: each session has keys of its own.
func TestSessionsDiffer(t *testing.T) {
	l := load(t, Secret)
	var all []string
	for range 3 {
		a, b := conns(t)
		x, y := shake(a, b, l, l, End{Dialler: true, Key: jobKey}, End{Key: jobKey})
		require.NoError(t, errors.Join(x.err, y.err))
		require.NotContains(t, all, string(x.s.Send))
		all = append(all, string(x.s.Send), string(x.s.Receive))
	}
}

func TestAnotherSecret(t *testing.T) {
	a, b := conns(t)
	x, y := shake(a, b, load(t, Secret), load(t, Secret), End{Dialler: true, Key: jobKey}, End{Key: []byte("another")})
	require.ErrorIs(t, x.err, ErrRefused)
	require.ErrorIs(t, y.err, ErrRefused)
	require.ErrorContains(t, y.err, "does not have the job's secret")
	require.ErrorContains(t, x.err, `by the other end: "the other end does not have the job's secret`)
	_, err := load(t, Secret).Handshake(a, End{})
	require.ErrorContains(t, err, "no job secret")
}

// TestManInTheMiddle: somebody who speaks TLS with both ends, and passes on all that they say in
// it, is found: what both prove is bound to one session.
func TestManInTheMiddle(t *testing.T) {
	a, ma := conns(t)
	mb, b := conns(t)
	middle := load(t, Secret)
	go func() {
		left, right := make(chan *Session, 1), make(chan *Session, 1)
		go func() { left <- middle.tlsOnly(ma, false) }()
		go func() { right <- middle.tlsOnly(mb, true) }()
		l, r := <-left, <-right
		if l == nil || r == nil {
			return
		}
		go func() { _, _ = io.Copy(l.Conn, r.Conn); _ = ma.Close() }()
		_, _ = io.Copy(r.Conn, l.Conn)
		_ = mb.Close()
	}()
	x, y := shake(a, b, load(t, Secret), load(t, Secret), End{Dialler: true, Key: jobKey}, End{Key: jobKey})
	require.ErrorIs(t, y.err, ErrRefused)
	require.ErrorContains(t, y.err, "something stands between the two")
	require.Error(t, x.err)
}

// TestOtherPair: an end that takes the other one for somebody else is refused, by both.
func TestOtherPair(t *testing.T) {
	l := load(t, Secret)
	for ends, same := range map[string]bool{"ab": true, "ac": false, "": false} {
		a, b := conns(t)
		x, y := shake(a, b, l, l, End{Dialler: true, Key: jobKey, Ends: []byte("ab")}, End{Key: jobKey, Ends: []byte(ends)})
		if same {
			require.NoError(t, errors.Join(x.err, y.err))
			continue
		}
		require.ErrorIs(t, x.err, ErrRefused)
		require.ErrorIs(t, y.err, ErrRefused)
		require.ErrorContains(t, y.err, "is another rank than was dialled")
	}
}

// tlsOnly speaks TLS, and no more of the handshake.
func (l *Layer) tlsOnly(conn net.Conn, dialler bool) *Session {
	h := l.begin(conn, End{Dialler: dialler})
	if h.conn.Handshake() != nil {
		return nil
	}
	return &Session{Conn: h.conn}
}

func TestCertificates(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	loopback := net.IPv4(127, 0, 0, 1)
	both := &x509.Certificate{IPAddresses: []net.IP{loopback}}
	ours, others := securetest.New(t), securetest.New(t)
	layer := func(by *securetest.Authority, name string, c *x509.Certificate, roots *securetest.Authority) *Layer {
		return load(t, by.Issue(name, c, roots))
	}
	old, err := Parse(ours.Issue("old", &x509.Certificate{IPAddresses: []net.IP{loopback},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}, ours))
	require.NoError(t, err)
	expired, err := old.read() // since it was loaded
	require.NoError(t, err)
	good := layer(ours, "good", both, ours)
	for name, c := range map[string]struct {
		bad  *Layer
		name string // by which the bad end was dialled
		why  string // empty: it is good
	}{
		"by its address": {bad: layer(ours, "address", &x509.Certificate{IPAddresses: []net.IP{loopback}}, ours)},
		"by its host":    {bad: layer(ours, "host", &x509.Certificate{DNSNames: []string{"other", host}}, ours)},
		"as dialled":     {bad: layer(ours, "dialled", &x509.Certificate{DNSNames: []string{"rank0.job"}}, ours), name: "rank0.job"},
		"of another host": {bad: layer(ours, "elsewhere", &x509.Certificate{DNSNames: []string{"elsewhere"}, IPAddresses: []net.IP{net.IPv4(10, 1, 2, 3)}}, ours),
			why: `the certificate is for "elsewhere, 10.1.2.3", and for none of "` + host + `", "127.0.0.1"`},
		"dialled as another": {bad: layer(ours, "another", &x509.Certificate{DNSNames: []string{"rank1.job"}}, ours), name: "rank0.job",
			why: `the certificate is for "rank1.job", and for none of "rank0.job", "` + host + `"`},
		"of other roots": {bad: layer(others, "other", both, ours), why: "signed by unknown authority"},
		"out of date":    {bad: expired, why: "(renew it, or set the clocks)"},
		"for mail": {bad: layer(ours, "mail", &x509.Certificate{IPAddresses: []net.IP{loopback}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}}, ours),
			why: "for servers and for clients"},
	} {
		for _, dials := range []bool{false, true} {
			a, b := conns(t)
			mine := End{Dialler: !dials, Key: jobKey, Name: c.name}
			x, y := shake(a, b, good, c.bad, mine, End{Dialler: dials, Key: jobKey})
			if c.why == "" {
				require.NoError(t, errors.Join(x.err, y.err), "%s, dials %v", name, dials)
				require.Equal(t, x.s.Send, y.s.Receive)
				continue
			}
			require.ErrorIs(t, x.err, ErrRefused, name)
			require.ErrorContains(t, x.err, c.why, name)
			require.ErrorContains(t, y.err, "TLS refused by the other end", "%s, dials %v", name, dials)
		}
	}
	a, b := conns(t)
	x, _ := shake(a, b, good, load(t, Secret), End{Key: jobKey}, End{Dialler: true, Key: jobKey})
	require.Error(t, x.err, "without a certificate")
}

// TestClaimedHost: a rank says itself which host it is on. Who claims to be on that of his
// certificate passes by the secret and any certificate of the roots, and by nothing less.
func TestClaimedHost(t *testing.T) {
	ours, others := securetest.New(t), securetest.New(t)
	elsewhere := func() *x509.Certificate { return &x509.Certificate{DNSNames: []string{"elsewhere"}} }
	acceptor := load(t, ours.Issue("acceptor", elsewhere(), ours))
	stolen, strange := load(t, ours.Issue("stolen", elsewhere(), ours)), load(t, others.Issue("strange", elsewhere(), ours))
	for name, c := range map[string]struct {
		layer     *Layer
		key       []byte
		host, why string
	}{
		"both":                {stolen, jobKey, "elsewhere", ""},
		"no secret":           {stolen, []byte("another"), "elsewhere", "does not have the job's secret"},
		"other roots":         {strange, jobKey, "elsewhere", "unknown authority"},
		"of another host yet": {stolen, jobKey, "nowhere", `and for none of "nowhere"`},
	} {
		a, b := conns(t)
		accepted := make(chan error, 1)
		go func() {
			_, err := acceptor.Handshake(b, End{Key: jobKey})
			accepted <- err
		}()
		h := c.layer.begin(a, End{Dialler: true, Key: c.key})
		require.NoError(t, h.conn.Handshake(), name)
		state := h.conn.ConnectionState()
		var err error
		h.binding, err = state.ExportKeyingMaterial(exportProof, nil, len(h.mac("")))
		require.NoError(t, err)
		require.NoError(t, h.say(append(h.mac(labelDialler), c.host...)), name)
		_, err = h.hear(0)
		if c.why == "" {
			require.NoError(t, err, name)
			require.NoError(t, h.say(nil), name)
			require.NoError(t, <-accepted, name)
			continue
		}
		require.ErrorContains(t, err, "TLS refused by the other end", name)
		require.ErrorContains(t, <-accepted, c.why, name)
	}
}

// TestCertificateIsTried: a certificate of one's own that can be of no use is refused at once, by
// the names of its files.
func TestCertificateIsTried(t *testing.T) {
	a := securetest.New(t)
	old := a.Issue("old", &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}, a)
	early := a.Issue("early", &x509.Certificate{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}, a)
	a.Curve = elliptic.P224()
	short := a.Issue("short", &x509.Certificate{}, a)
	for text, why := range map[string]string{old: "old-key.pem: it is valid from ", early: "early-key.pem: it is valid from ",
		short: "short-key.pem: it cannot be used for TLS 1.3: tls: "} {
		s, err := Parse(text)
		require.NoError(t, err)
		_, err = s.Load()
		require.ErrorContains(t, err, why, text)
	}
}

func TestLoadFaults(t *testing.T) {
	a := securetest.New(t)
	a.Issue("fine", &x509.Certificate{}, a)
	at := func(name string) string { return filepath.Join(a.Dir, name) }
	for text, why := range map[string]string{
		at("none.pem") + "," + at("fine-key.pem") + "," + at("roots.pem"):    "no such file",
		at("fine.pem") + "," + at("none.pem") + "," + at("roots.pem"):        "no such file",
		at("fine.pem") + "," + at("fine-key.pem") + "," + at("none.pem"):     "roots: open",
		at("roots.pem") + "," + at("fine-key.pem") + "," + at("roots.pem"):   "private key does not match",
		at("fine.pem") + "," + at("fine-key.pem") + "," + at("fine-key.pem"): "fine-key.pem has no certificate",
	} {
		s, err := Parse(text)
		require.NoError(t, err)
		_, err = s.Load()
		require.ErrorContains(t, err, why, text)
	}
}

// TestNoTLS: a peer that speaks something else is an error, and so is one that says too much.
func TestNoTLS(t *testing.T) {
	a, b := conns(t)
	_, err := b.Write(bytes.Repeat([]byte("GET / HTTP/1.0\r\n"), 10))
	require.NoError(t, err)
	_, err = load(t, Secret).Handshake(a, End{Dialler: true, Key: jobKey})
	require.ErrorContains(t, err, "TLS: ")
	require.NotErrorIs(t, err, ErrRefused)
}

// TestNoRecord: what cannot be a record of TLS 1.3 is refused at once, and not waited for.
func TestNoRecord(t *testing.T) {
	for _, head := range [][]byte{{22, 3, 3, 0x41, 0x01}, {22, 3, 3, 0xff, 0xff}, {19, 3, 3, 0, 5}, {24, 3, 3, 0, 5}} {
		a, b := conns(t)
		_, err := b.Write(head)
		require.NoError(t, err)
		_, err = load(t, Secret).Handshake(a, End{Dialler: true, Key: jobKey})
		require.ErrorIs(t, err, ErrChanged)
	}
	a, b := conns(t)
	_, err := b.Write([]byte{22, 3, 3, 0x41, 0x00})
	require.NoError(t, err)
	n, err := io.ReadFull(&records{Conn: a}, make([]byte, 5))
	require.NoError(t, err, "the longest record")
	require.Equal(t, 5, n)
}
