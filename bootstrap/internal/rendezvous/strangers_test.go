package rendezvous

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
)

// TestForgedProof dials as a rank that does not know the secret: what rank 0 has said, or another
// rank before, proves nothing, and rank 0 does not prove itself to who has not.
func TestForgedProof(t *testing.T) {
	secret := NewSecret("test")
	h, port := openStore(t, 2, secret)
	greet := func(hello *helloMsg) *framer {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		f := newFramer(conn)
		require.NoError(t, f.greet(hello))
		_, err = f.readPreface()
		require.NoError(t, err)
		return f
	}
	hello := &helloMsg{rank: 1, size: 2, secret: true, nonce: newNonce()}
	_, err := expect[*challengeMsg](greet(hello), maxHandshake)
	require.ErrorIs(t, err, ErrSecret)
	require.Contains(t, h.absent(), "the job secret of rank 1 is not that of rank 0")

	hello.sign(secret.Bytes) // recorded
	f := greet(hello)
	c, err := expect[*challengeMsg](f, maxHandshake)
	require.NoError(t, err)
	require.NoError(t, f.write(&proofMsg{newSession(secret.Bytes, hello, c).mac(labelRoot)}))
	_, err = expect[*acceptMsg](f, maxHandshake)
	require.ErrorIs(t, err, ErrSecret)
	_, err = expect[*challengeMsg](greet(hello), maxHandshake)
	require.ErrorIs(t, err, io.EOF, "a greeting counts once")
}

// TestStrangersLearnNothing: who does not prove that it knows the secret hears the same of a job
// that runs as of one of another size, of another kind of TLS, to which no rank has come yet.
func TestStrangersLearnNothing(t *testing.T) {
	key := given(0x5a).Bytes
	_, begins := openStore(t, 3, Secret{Bytes: key})
	runs := portOf(startJob(t, 2, given(0x5a), "secret")[0])
	answer := func(port string, hello helloMsg, key []byte) string {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		defer conn.Close()
		f := newFramer(conn)
		hello.nonce = newNonce()
		hello.sign(key)
		require.NoError(t, f.greet(&hello))
		_, err = f.readPreface()
		require.NoError(t, err)
		_, err = expect[*challengeMsg](f, maxHandshake)
		if err == nil { // as after a recorded greeting
			require.NoError(t, f.write(&proofMsg{}))
			_, err = expect[*acceptMsg](f, maxHandshake)
		}
		require.ErrorIs(t, err, ErrSecret)
		return err.Error()
	}
	for _, key := range [][]byte{nil, make([]byte, SecretSize), key} {
		for rank := range uint32(4) {
			for _, epoch := range []string{"", "another"} {
				for size := uint32(2); size < 4; size++ {
					hello := helloMsg{rank: rank, size: size, secret: key != nil, epoch: epoch}
					require.Equal(t, answer(begins, hello, key), answer(runs, hello, key), "%+v", hello)
				}
			}
		}
	}
}

// TestFalseRoot: what answers for rank 0 does not know the secret, and learns nothing that it could
// answer with.
func TestFalseRoot(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	told := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			told <- err
			return
		}
		defer conn.Close()
		f := newFramer(conn)
		_, err = f.readPreface()
		hello, err1 := expect[*helloMsg](f, maxHandshake)
		err = errors.Join(err, err1, f.writePreface(), f.write(&challengeMsg{nonce: hello.nonce}))
		p, err1 := expect[*proofMsg](f, maxHandshake)
		err = errors.Join(err, err1, f.write(&acceptMsg{p.mac}))
		if _, end := expect[*wantMsg](f, maxHandshake); !errors.Is(end, ErrSecret) {
			err = errors.Join(err, fmt.Errorf("want to be told, got %w", end))
		}
		told <- err
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_, err = candidateOf(1, 2, port).with(t, given(0x5a), "").join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrSecret)
	require.ErrorContains(t, err, "what answers there does not know the job secret")
	require.NoError(t, <-told)
}

// TestWordsOfStrangersAreQuoted: neither at the rank that dials them nor at rank 0 do they move a
// cursor or forge a line, and before both ends have proved who they are nothing else than REJECT
// ends a join.
func TestWordsOfStrangersAreQuoted(t *testing.T) {
	const words, quoted = "no\x1b[2J\ntagmatch: all is well", `"no\x1b[2J\ntagmatch: all is well"`
	frame := func(m message) []byte {
		b := encode([]byte{byte(m.kind())}, m)
		return append(bytes.Clone(preface), append(be.AppendUint32(nil, uint32(len(b))), b...)...)
	}
	port := fakeRoot(t, frame(&rejectMsg{rejectRank, words}))
	_, err := candidateOf(1, 2, port).join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "refused: "+quoted)
	for _, m := range []message{&failMsg{1, words}, &abortMsg{1, 3, words}} {
		_, err := candidateOf(1, 2, fakeRoot(t, frame(m))).join(ranktest.Timeout(t))
		require.ErrorIs(t, err, ErrProtocol)
		require.NotContains(t, err.Error(), "all is well")
	}
	h, port := openStore(t, 2, NewSecret("test"))
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(frame(&rejectMsg{rejectRank, words}))
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, conn)
	require.Contains(t, h.absent(), quoted)
}
