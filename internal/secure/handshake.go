package secure

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// Layer is the TLS of one process. A nil Layer is off.
type Layer struct {
	kind  string
	cert  tls.Certificate
	roots *x509.CertPool // of kind Files
}

// Kind is that of its Setting.
func (l *Layer) Kind() string {
	if l == nil {
		return Off
	}
	return l.kind
}

// End is what an end of a connection gives to the handshake.
type End struct {
	Dialler bool   // of the two ends one is
	Key     []byte // the job's secret, or a key from it; not empty
	// Name is by what the other end was dialled, a host name or address; empty: by nothing that a
	// certificate could be for.
	Name string
	// Ends says who the two ends are, in the same words at both; with nil it does not matter. They
	// meet only if they agree: a connection of another pair cannot be put in place of theirs.
	Ends []byte
}

// Session is a TLS connection whose ends know each other. Send and Receive are secrets of its two
// directions, for package seal; at the other end they are exchanged.
type Session struct {
	Conn          *tls.Conn
	Send, Receive []byte
}

// ErrRefused is the condition of a handshake that one of the ends has refused for a reason.
var ErrRefused = errors.New("TLS refused")

// Labels differ by direction, so that nothing can be reflected.
const (
	labelDialler  = "tagmatch TLS 1: dialler"
	labelAcceptor = "tagmatch TLS 1: acceptor"

	exportProof   = "EXPORTER-tagmatch-1-proof"
	exportDial    = "EXPORTER-tagmatch-1-from-dialler"
	exportAccept  = "EXPORTER-tagmatch-1-from-acceptor"
	maxHost       = 255
	maxText       = 512
	maxMessage    = max(sha256.Size+maxHost, maxText)
	statusRefused = 1 // the body is a text
)

// Handshake makes conn, on which nothing else is under way, a TLS connection. It reads no byte of
// what follows the handshake; conn stays the caller's, whose deadline ends it. An error that is
// ErrRefused has the reason; others are those of conn, or of a peer that does not speak TLS.
func (l *Layer) Handshake(conn net.Conn, end End) (*Session, error) {
	if len(end.Key) == 0 {
		return nil, fmt.Errorf("%w: there is no job secret to know the other end by", ErrRefused)
	}
	h := l.begin(conn, end)
	if err := h.conn.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	state := h.conn.ConnectionState()
	h.state = &state
	s := &Session{Conn: h.conn}
	send, receive := exportDial, exportAccept
	if !end.Dialler {
		send, receive = receive, send
	}
	var err [3]error
	h.binding, err[0] = state.ExportKeyingMaterial(exportProof, nil, sha256.Size)
	s.Send, err[1] = state.ExportKeyingMaterial(send, nil, sha256.Size)
	s.Receive, err[2] = state.ExportKeyingMaterial(receive, nil, sha256.Size)
	if err := errors.Join(err[:]...); err != nil {
		return nil, err
	}
	return s, h.know()
}

// handshake is one under way, from where TLS has been established.
type handshake struct {
	layer   *Layer
	end     End
	raw     net.Conn
	conn    *tls.Conn
	state   *tls.ConnectionState
	binding []byte // of this session alone, equal at both ends
}

// begin prepares a handshake on conn.
func (l *Layer) begin(conn net.Conn, end End) *handshake {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{l.cert}, SessionTicketsDisabled: true,
		// Both ends check the other's certificate below, where they can tell it why they refuse.
		InsecureSkipVerify: true}
	if l.kind == Files {
		cfg.ClientAuth = tls.RequireAnyClientCert
	}
	h := &handshake{layer: l, end: end, raw: conn}
	if end.Dialler {
		h.conn = tls.Client(&records{Conn: conn}, cfg)
	} else {
		h.conn = tls.Server(&records{Conn: conn}, cfg)
	}
	return h
}

// know has each end know the other: the dialler proves itself, then the acceptor; then the dialler
// says that it is satisfied.
func (h *handshake) know() error {
	if h.end.Dialler {
		if err := h.prove(labelDialler); err != nil {
			return err
		}
		if err := h.judge(labelAcceptor); err != nil {
			return err
		}
		return h.say(nil)
	}
	if err := h.judge(labelDialler); err != nil {
		return err
	}
	if err := h.prove(labelAcceptor); err != nil {
		return err
	}
	_, err := h.hear(0)
	if errors.Is(err, net.ErrClosed) { // here: the dialler may be satisfied, and is told why it ends
		return nil
	}
	return err
}

// prove sends this end's proof and the name of its host.
func (h *handshake) prove(label string) error {
	host, _ := os.Hostname()
	if len(host) > maxHost {
		host = ""
	}
	return h.say(append(h.mac(label), host...))
}

func (h *handshake) mac(label string) []byte {
	m := hmac.New(sha256.New, h.end.Key)
	m.Write([]byte(label + ", " + h.layer.kind + "\x00"))
	m.Write(h.binding)
	m.Write(h.end.Ends)
	return m.Sum(nil)
}

// judge receives the other end's proof. If it is good this end is satisfied, else it says why not.
func (h *handshake) judge(label string) error {
	b, err := h.hear(sha256.Size)
	if err != nil {
		return err
	}
	if !hmac.Equal(b[:sha256.Size], h.mac(label)) {
		err = errors.New("the other end does not have the job's secret, or is another rank than was dialled, or something stands between the two")
	} else if h.layer.kind == Files {
		err = h.checkCertificate(string(b[sha256.Size:]))
	}
	if err != nil {
		text := err.Error()
		_ = h.write(statusRefused, []byte(text[:min(len(text), maxText)]))
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// checkCertificate checks the other end's certificate: that the roots vouch for it, and that it is
// for where that end is: its address, the name by which it was dialled, or the host that it says it
// is on. Nothing proves that it is there: who has the secret and any certificate of these roots
// passes. A look-up of that name would not help where the network's DNS can be changed, and would
// fail where hosts have no names.
func (h *handshake) checkCertificate(host string) error {
	certs := h.state.PeerCertificates
	usage := x509.ExtKeyUsageServerAuth
	if !h.end.Dialler {
		usage = x509.ExtKeyUsageClientAuth
	}
	opt := x509.VerifyOptions{Roots: h.layer.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range certs[1:] {
		opt.Intermediates.AddCert(c)
	}
	if _, err := certs[0].Verify(opt); err != nil {
		todo := "it must be of the job's roots, for servers and for clients"
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			todo = "renew it, or set the clocks"
		}
		return fmt.Errorf("the certificate of host %q: %w (%s)", host, err, todo)
	}
	addr, _, _ := net.SplitHostPort(h.raw.RemoteAddr().String())
	var names []string
	for _, name := range []string{h.end.Name, host, addr} {
		if name == "" {
			continue
		}
		if certs[0].VerifyHostname(name) == nil {
			return nil
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	return fmt.Errorf("the certificate is for %q, and for none of %s, where that rank is: issue it for one of these", namesOf(certs[0]), strings.Join(names, ", "))
}

func namesOf(c *x509.Certificate) string {
	list := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		list = append(list, ip.String())
	}
	return strings.Join(list, ", ")
}

// say sends a message with which this end goes on.
func (h *handshake) say(body []byte) error { return h.write(0, body) }

func (h *handshake) write(status byte, body []byte) error {
	b := append(make([]byte, 0, 3+len(body)), status)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	_, err := h.conn.Write(append(b, body...))
	return err
}

// hear receives a message of at least so many bytes.
func (h *handshake) hear(least int) ([]byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(h.conn, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > maxMessage {
		return nil, fmt.Errorf("%w: a message of %d bytes: the most is %d", ErrRefused, n, maxMessage)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(h.conn, b); err != nil {
		return nil, err
	}
	switch {
	case head[0] == statusRefused:
		return nil, fmt.Errorf("%w by the other end: %q", ErrRefused, b)
	case n < least:
		return nil, fmt.Errorf("%w: a message of %d bytes: it has at least %d", ErrRefused, n, least)
	}
	return b, nil
}

// ErrChanged is the condition of what the other end of a handshake cannot have said.
var ErrChanged = errors.New("what came was changed on its way, or is no TLS")

// records has crypto/tls read no further than the record that it asks for, as what follows the
// handshake may be no record of TLS. It refuses what no record can be, rather than wait for its
// end. Who stands between the ends can make them wait all the same, by a length that one may have.
type records struct {
	net.Conn
	head [5]byte // type, version, length
	have int     // bytes of head that were read
	left int     // bytes of the record behind head that were not
}

// What a record of TLS 1.3 can be.
const (
	minRecord = 20 // type: change cipher spec
	maxRecord = 23 // type: application data
	maxLength = 16<<10 + 256
)

func (r *records) Read(p []byte) (int, error) {
	if r.left > 0 {
		n, err := r.Conn.Read(p[:min(len(p), r.left)])
		r.left -= n
		return n, err
	}
	n, err := r.Conn.Read(p[:min(len(p), len(r.head)-r.have)])
	r.have += copy(r.head[r.have:], p[:n])
	if r.have == len(r.head) {
		r.have, r.left = 0, int(binary.BigEndian.Uint16(r.head[3:]))
		if kind := r.head[0]; kind < minRecord || kind > maxRecord || r.left > maxLength {
			return n, fmt.Errorf("%w: a record of type %d with %d bytes", ErrChanged, kind, r.left)
		}
	}
	return n, err
}
