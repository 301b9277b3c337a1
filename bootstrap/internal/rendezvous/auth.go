package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"

	"github.com/tagmatch/tagmatch/internal/door"
)

// Labels differ by direction, so that no message can be reflected to its sender as an answer.
const (
	labelHello    = "tagmatch rendezvous 1: greeting"
	labelRoot     = "tagmatch rendezvous 1: rank 0 answers"
	labelRank     = "tagmatch rendezvous 1: rank answers"
	labelFromRoot = "tagmatch rendezvous 1: frames from rank 0"
	labelFromRank = "tagmatch rendezvous 1: frames to rank 0"
)

// session is the state of a handshake that both sides share. A job without a secret uses an empty
// key: the exchange then proves nothing, but its frames look the same.
type session struct {
	key        []byte
	transcript []byte
}

func newSession(secret []byte, h *helloMsg, c *challengeMsg) *session {
	t := be.AppendUint32(nil, protocolVersion)
	t = encode(t, h) // rank, size, secret or not, nonce, epoch
	t = append(t, c.nonce[:]...)
	return &session{key: secret, transcript: t}
}

func (s *session) mac(label string) (m [macSize]byte) {
	h := hmac.New(sha256.New, s.key)
	h.Write(be.AppendUint16(nil, uint16(len(label))))
	h.Write([]byte(label))
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

func newNonce() (n door.Nonce) {
	rand.Read(n[:]) // never fails
	return n
}

// sign gives a HELLO its MAC.
func (m *helloMsg) sign(key []byte) { m.mac = m.sum(key) }

// signed checks the MAC of a HELLO.
func (m *helloMsg) signed(key []byte) bool {
	want := m.sum(key)
	return hmac.Equal(want[:], m.mac[:])
}

func (m *helloMsg) sum(key []byte) [macSize]byte {
	unsigned := *m
	unsigned.mac = [macSize]byte{}
	return newSession(key, &unsigned, &challengeMsg{}).mac(labelHello)
}

// vouch returns nil for a HELLO signed with key that is not in seen, and puts it there.
func (m *helloMsg) vouch(key []byte, seen *door.Nonces) error {
	if !m.signed(key) {
		return ErrSecret
	}
	if !seen.Fresh(m.nonce) {
		return Errorf(ErrProtocol, "a greeting of rank %d that was sent before", m.rank)
	}
	return nil
}

// knownBy has a door tell ranks from strangers: by a HELLO in the first bytes that vouch lets pass.
func knownBy(vouch func(*helloMsg) error) func(first []byte) bool {
	return func(first []byte) bool {
		hello := greeting(first)
		return hello != nil && vouch(hello) == nil
	}
}

// greeting reads a whole preface and HELLO from the first bytes of a connection; nil: that is not
// what they are.
func greeting(first []byte) *helloMsg {
	const head = prefaceSize + headerSize
	if len(first) < head || string(first[:prefaceSize]) != string(preface) || kind(first[head-1]) != kindHello {
		return nil
	}
	n := int64(be.Uint32(first[prefaceSize:])) - 1 // bytes of the body
	if n < 0 || n > int64(len(first)-head) {
		return nil
	}
	m, err := decode(kindHello, first[head:][:n])
	if err != nil {
		return nil
	}
	return m.(*helloMsg)
}

// mostGreeting is the most bytes that greeting reads.
const mostGreeting = prefaceSize + headerSize + maxHandshake

// challenge has the rank that has sent hello prove that it knows key. The error is ErrSecret for a
// wrong proof, which the rank was not told of.
func (f *framer) challenge(key []byte, hello *helloMsg) (*session, error) {
	c := &challengeMsg{nonce: newNonce()}
	s := newSession(key, hello, c)
	if err := f.write(c); err != nil {
		return nil, err
	}
	p, err := expect[*proofMsg](f, maxHandshake)
	if err != nil {
		return nil, err
	}
	if !s.check(labelRank, p.mac) {
		return nil, ErrSecret
	}
	return s, nil
}

// accept proves the same to a rank that has answered the challenge of s, and seals f.
func (f *framer) accept(s *session) error {
	if err := f.write(&acceptMsg{s.mac(labelRoot)}); err != nil {
		return err
	}
	s.sealRoot(f)
	return nil
}

// prove is the other side of both. The error is errImpostor where the other end does not prove
// that it knows key.
func (f *framer) prove(key []byte, hello *helloMsg) error {
	c, err := expect[*challengeMsg](f, maxHandshake)
	if err != nil {
		return err
	}
	s := newSession(key, hello, c)
	if err := f.write(&proofMsg{s.mac(labelRank)}); err != nil {
		return err
	}
	a, err := expect[*acceptMsg](f, maxHandshake)
	if err != nil {
		return err
	}
	if !s.check(labelRoot, a.mac) {
		return errImpostor
	}
	s.sealRank(f)
	return nil
}

var errImpostor = Errorf(ErrSecret, "what answers there does not know the job secret")
