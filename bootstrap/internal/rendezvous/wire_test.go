package rendezvous

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/door"
)

// samples has one message of each kind and its encoding, which other builds expect.
func samples() []struct {
	m    message
	body string
} {
	return []struct {
		m    message
		body string
	}{
		{&helloMsg{rank: 1, size: 4, secret: true, nonce: [32]byte{31: 9}, relay: 258, tls: 2, epoch: "run/0", mac: [32]byte{31: 2}},
			"00000001" + "00000004" + "01" + zeros(31) + "09" + "0102" + "02" + "0005" + "72756e2f30" + zeros(31) + "02"},
		{&challengeMsg{nonce: [32]byte{31: 1}}, zeros(31) + "01"},
		{&proofMsg{mac: [32]byte{31: 3}}, zeros(31) + "03"},
		{&welcomeMsg{jobID: [16]byte{15: 4}, root: netip.MustParseAddr("10.0.0.1")}, zeros(15) + "04" + "00" + "0004" + "0a000001" + "0000" + "0000"},
		{&welcomeMsg{parent: netip.MustParseAddrPort("10.0.0.2:259")}, zeros(16) + "00" + "0000" + "0103" + "0004" + "0a000002"},
		{&welcomeMsg{secret: make([]byte, 32)}, zeros(16) + "20" + zeros(32) + "0000" + "0000" + "0000"},
		{&rejectMsg{rejectSecret, "no"}, "0002" + "0002" + "6e6f"},
		{&fenceMsg{seq: 1, entries: []entry{{key: "k", value: []byte("vw")}}}, "00000001" + "0001" + "6b" + "00000002" + "7677"},
		{&releaseMsg{seq: 1, entries: []entry{{rank: 3, key: "k", value: []byte("v")}}}, "00000001" + "00000003" + "0001" + "6b" + "00000001" + "76"},
		{&abortMsg{rank: -1, code: 7, reason: "x"}, "ffffffff" + "00000007" + "0001" + "78"},
		{&failMsg{rank: 2, reason: "x"}, "00000002" + "0001" + "78"},
		{&giveUpMsg{seq: 2, reason: "x"}, "00000002" + "0001" + "78"},
		{&byeMsg{true}, "01"},
		{&goneMsg{rank: 2, reason: "x"}, "00000002" + "0001" + "78"},
		{&peerGivenUpMsg{rank: 2, reason: "x"}, "00000002" + "0001" + "78"},
		{&wantMsg{have: 5}, "00000005"},
		{&acceptMsg{mac: [32]byte{31: 3}}, zeros(31) + "03"},
		{&askMsg{rank: 2, number: 3, question: "q"}, "00000002" + "00000003" + "0001" + "71"},
		{&replyMsg{rank: 2, number: 3, why: "w", body: []byte("b")}, "00000002" + "00000003" + "0001" + "77" + "00000001" + "62"},
	}
}

func zeros(n int) string { return hex.EncodeToString(make([]byte, n)) }

func TestGoldenBytes(t *testing.T) {
	for _, s := range samples() {
		body := encode(nil, s.m)
		require.Equal(t, s.body, hex.EncodeToString(body), "%v", s.m.kind())
		got, err := decode(s.m.kind(), body)
		require.NoError(t, err, "%v", s.m.kind())
		require.Equal(t, s.body, hex.EncodeToString(encode(nil, got)), "%v", s.m.kind())
		for n := range body {
			_, err := decode(s.m.kind(), body[:n])
			if err == nil { // lists of entries have no count: any prefix may be valid
				require.Contains(t, []kind{kindFence, kindRelease}, s.m.kind(), "%v cut to %d bytes", s.m.kind(), n)
			}
		}
		_, err = decode(s.m.kind(), append(body, 0))
		require.ErrorIs(t, err, ErrProtocol, "%v with a byte too many", s.m.kind())
	}
}

// FuzzDecode looks for bytes that crash the decoder, and for two encodings of one message.
func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(byte(s.m.kind()), encode(nil, s.m))
	}
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		m, err := decode(kind(k), body)
		if err != nil {
			return
		}
		again := encode(nil, m)
		if string(again) != string(body) {
			t.Fatalf("%v: %x decodes to %+v, which encodes to %x", kind(k), body, m, again)
		}
		m2, err := decode(kind(k), again)
		if err != nil || !reflect.DeepEqual(m, m2) {
			t.Fatalf("%v: %+v, again %+v, %v", kind(k), m, m2, err)
		}
	})
}

// FuzzHandshake feeds bytes to a store's connection.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(bytes.Clone(preface), 0, 0, 0, 1, byte(kindBye)))
	for _, s := range samples() {
		body := encode(nil, s.m)
		f.Add(append(append(be.AppendUint32(bytes.Clone(preface), uint32(len(body)+1)), byte(s.m.kind())), body...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		me := candidate{}
		me.SetDefaults()
		me.handshake = time.Second
		s := &store{hub: newHub(4, fanOut), cfg: &me.Config, secret: make([]byte, SecretSize)}
		in, out := net.Pipe()
		go func() {
			_, _ = out.Write(b)
			out.Close()
		}()
		go func() { // reads the store's answers
			p := make([]byte, 4096)
			for {
				if _, err := out.Read(p); err != nil {
					return
				}
			}
		}()
		end := make(chan error, 1)
		s.door = door.Open(door.Config{Listener: &oneConn{conn: in, closed: make(chan struct{})}, Strangers: 1, Warn: func(door.Turned) {},
			Serve: func(v *door.Visitor) error {
				_, _, err := s.handshake(v)
				end <- err
				return err
			}})
		if <-end == nil {
			t.Fatal("let in without the secret")
		}
		s.door.Close()
		s.door.Wait()
	})
}

// oneConn is a listener to which one connection comes.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error { close(l.closed); return nil }
func (*oneConn) Addr() net.Addr { return nil }

// FuzzFrames feeds bytes to the reader of an authenticated connection without its MAC: lengths and
// contents must be checked all the same.
func FuzzFrames(f *testing.F) {
	for _, s := range samples() {
		body := encode(nil, s.m)
		f.Add(append(append(be.AppendUint32(nil, uint32(len(body)+1)), byte(s.m.kind())), body...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHub(1, fanOut)
		e := newEndpoint(0, 1, Info{})
		e.up = &localLink{h, 0}
		h.join(0, localMember{e})
		in, out := net.Pipe()
		go func() {
			_, _ = out.Write(b)
			out.Close()
		}()
		m := &remote{f: newFramer(in)}
		m.read(context.Background(), 0, h)
		in.Close()
	})
}
