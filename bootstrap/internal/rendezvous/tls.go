package rendezvous

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"

	"github.com/tagmatch/tagmatch/internal/secure"
)

// tlsKind is how HELLO names the kind of TLS that a rank has.
type tlsKind uint8

// tlsKinds are the names of kinds; their places are what HELLO has.
var tlsKinds = []string{secure.Off, secure.Secret, secure.Files}

func kindOf(l *secure.Layer) tlsKind { return tlsKind(slices.Index(tlsKinds, l.Kind())) }
func (k tlsKind) String() string     { return tlsKinds[k] }

// upgrade has all frames after the authentication go over TLS, unless l is off. They keep their
// MACs, by which they belong to what was authenticated. The end that has dialled speaks first, so
// that nothing of TLS can have been read yet.
func (f *framer) upgrade(l *secure.Layer, end secure.End) error {
	if l == nil {
		return nil
	}
	if n := f.r.Buffered(); n > 0 {
		return Errorf(ErrProtocol, "%d bytes came where TLS begins", n)
	}
	s, err := l.Handshake(f.conn, end)
	if errors.Is(err, secure.ErrRefused) {
		return Errorf(ErrRefused, "%v (%s)", err, EnvTLS)
	}
	if err != nil {
		return err
	}
	f.r.Reset(tlsReader{s.Conn})
	f.w = s.Conn
	return nil
}

// tlsReader reads what has come over TLS.
type tlsReader struct{ conn *tls.Conn }

// Read has an error of TLS, at either end, be ErrProtocol; those of the connection stay what they
// are.
func (r tlsReader) Read(b []byte) (int, error) {
	n, err := r.conn.Read(b)
	if isChanged(err) {
		err = Errorf(ErrProtocol, "what came was changed on its way: %v", err)
	}
	return n, err
}

// isChanged reports whether err is that of TLS at an end that has received what the other has not
// sent.
func isChanged(err error) bool {
	op, _ := errors.AsType[*net.OpError](err)
	_, header := errors.AsType[tls.RecordHeaderError](err)
	return header || op != nil && (op.Op == "local error" || op.Op == "remote error")
}
