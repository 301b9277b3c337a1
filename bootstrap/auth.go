package bootstrap

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

// Labels differ by direction, so that no message can be reflected to its sender as an answer.
const (
	labelRoot     = "tagmatch rendezvous 1: rank 0 answers"
	labelRank     = "tagmatch rendezvous 1: rank answers"
	labelFromRoot = "tagmatch rendezvous 1: frames from rank 0"
	labelFromRank = "tagmatch rendezvous 1: frames to rank 0"
)

// session is the state of a handshake that both sides share. A job without a secret uses an empty
// key: the exchange then proves nothing, but its frames look the same.
type session struct {
	key        []byte
	hello      *helloMsg
	challenge  *challengeMsg
	transcript []byte
}

func newSession(secret []byte, h *helloMsg, c *challengeMsg) *session {
	t := be.AppendUint32(nil, protocolVersion)
	t = h.append(t) // rank, size, secret or not, nonce, epoch
	t = appendBool(t, c.secret)
	t = append(t, c.nonce[:]...)
	return &session{key: secret, hello: h, challenge: c, transcript: t}
}

func (s *session) mac(label string) (m [macSize]byte) {
	h := hmac.New(sha256.New, s.key)
	h.Write(appendString(nil, label))
	h.Write(s.transcript)
	h.Sum(m[:0])
	return m
}

// check compares in constant time.
func (s *session) check(label string, got [macSize]byte) bool {
	want := s.mac(label)
	return hmac.Equal(want[:], got[:])
}

func (s *session) sealRoot(f *framer) {
	in, out := s.mac(labelFromRank), s.mac(labelFromRoot)
	f.seal(in[:], out[:])
}

func (s *session) sealRank(f *framer) {
	in, out := s.mac(labelFromRoot), s.mac(labelFromRank)
	f.seal(in[:], out[:])
}

func newNonce() (n [nonceSize]byte) {
	rand.Read(n[:]) // never fails
	return n
}
