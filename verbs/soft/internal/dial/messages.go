package dial

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// The handshake of every connection, little-endian:
//
//	dialler  -> hello: magic, version, length, then kind, both ids, both ranks, nonce,
//	            the dialler's encoded address, HMAC-SHA256(secret, hello's label, all of these)
//	acceptor -> challenge: nonce
//	dialler  -> proof: HMAC-SHA256(secret, dialler's label, hello, challenge)
//	acceptor -> accept: HMAC-SHA256(secret, acceptor's label, hello, challenge)
//	dialler  -> confirm
//	both     -> ready, on wires with Config.Prepare, see Ready
//
// Either side may answer with reject (a code and a text) and close. The MAC of the hello tells a
// peer from a stranger by its first bytes, see package door; no nonce counts twice. The dialler
// proves first, so that a stranger learns nothing from the acceptor; the labels differ, so that no
// proof can be reflected; without a confirm the connection ends, so that a dialler can give up when
// the peer's own dial was faster, see Connector. The reject message and the first 12 bytes of hello
// are the same in all versions.
const (
	helloMagic      = "tagmatch"
	protocolVersion = 8
	helloPrefix     = len(helloMagic) + 2 + 2
	nonceSize       = door.NonceSize
	macSize         = sha256.Size
	maxKind         = 16
	helloFixed      = 1 + 2*16 + 2*4 + nonceSize + macSize // without prefix, kind and address
	maxHello        = helloFixed + maxKind + wire.MaxAddressSize
	maxReject       = 1 + 255

	labelHello    = "tagmatch verbs/soft connection 1: hello\x00"
	labelDialler  = "tagmatch verbs/soft connection 1: dialler\x00"
	labelAcceptor = "tagmatch verbs/soft connection 1: acceptor\x00"
)

// msgType is the first byte of every message but hello; two bytes of length follow.
type msgType uint8

const (
	msgChallenge msgType = 1 + iota
	msgProof
	msgAccept
	msgConfirm
	msgReject
	msgReady
)

// msgSize is the size of a message's body; a reject has 1 to maxReject bytes.
var msgSize = [...]int{msgChallenge: nonceSize, msgProof: macSize, msgAccept: macSize, msgConfirm: 0, msgReady: 0}

// rejectCode says why a connection was refused.
type rejectCode uint8

// Those with capitals are for wires whose Dial finds the reason itself.
const (
	rejectMagic       rejectCode = 1 + iota // not this protocol
	rejectVersion                           // another version of it
	rejectKind                              // another wire
	rejectDestination                       // the device is not here
	rejectHello                             // malformed, or contradicts itself
	rejectSecret                            // of another job
	rejectDuplicate                         // the acceptor's own dial is preferred
	RejectClosing                           // the device is being closed, or cannot connect
	rejectShort                             // of descriptors or memory: dial again
	rejectForbidden                         // the kernel forbids a system call
	RejectYielded                           // the acceptor has left this peer to another wire
	rejectViolated                          // this end has broken the protocol, behind the handshake
	rejectGivenUp                           // the acceptor has failed to connect to this peer, and says why
	rejectUnreached                         // the same, where that is on the way
)

// rejectError is the error of a refused connection at both ends.
type rejectError struct {
	code rejectCode
	text string
	byUs bool // this end has refused
}

func (e *rejectError) Error() string {
	if e.byUs {
		return e.text
	}
	return fmt.Sprintf("the peer refused the connection: %q", e.text) // quoted: a stranger may have written it
}

// Is has the owner learn that the reason is not on the way, unless something else answers there or
// the refusal says that it is, and a peer what became of it: it was given up, or is accused of what
// it said.
func (e *rejectError) Is(target error) bool {
	if target == verbs.ErrRefused && e.code != rejectMagic && e.code != rejectUnreached || target == verbs.ErrPeerFailed && e.code == rejectGivenUp && !e.byUs {
		return true
	}
	violated := e.code == rejectHello || e.code == rejectViolated
	return violated && (e.byUs && target == verbs.ErrProtocol || !e.byUs && target == verbs.ErrAccused)
}

// Refuse makes the error of a connection that this end refuses.
func Refuse(code rejectCode, format string, args ...any) *rejectError {
	return &rejectError{code: code, text: fmt.Sprintf(format, args...), byUs: true}
}

// hello is the dialler's first message.
type hello struct {
	kind             string
	src, dst         wire.DeviceID
	srcRank, dstRank uint32
	nonce            door.Nonce
	addr             []byte // encoded
	mac              [macSize]byte
}

func (h *hello) encode() []byte {
	b := make([]byte, 0, 256)
	b = append(b, helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, protocolVersion)
	b = append(b, 0, 0)
	b = wire.AppendText(b, h.kind)
	b = append(b, h.src[:]...)
	b = append(b, h.dst[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.srcRank)
	b = binary.LittleEndian.AppendUint32(b, h.dstRank)
	b = append(b, h.nonce[:]...)
	b = append(b, h.addr...)
	b = append(b, h.mac[:]...)
	binary.LittleEndian.PutUint16(b[helloPrefix-2:], uint16(len(b)-helloPrefix))
	return b
}

// sign returns the encoded hello with its MAC.
func (h *hello) sign(secret []byte) []byte {
	raw := h.encode()
	signed := raw[:len(raw)-macSize]
	return append(signed, proof(secret, labelHello, signed, nil)...)
}

// signed checks the MAC of an encoded hello.
func signed(secret, raw []byte) bool {
	n := len(raw) - macSize
	return proven(secret, labelHello, raw[:n], nil, raw[n:])
}

// helloLength checks the first helloPrefix bytes and returns how many follow.
func helloLength(b []byte) (int, error) {
	if string(b[:len(helloMagic)]) != helloMagic {
		return 0, Refuse(rejectMagic, "not a tagmatch connection: it starts with %q", b[:len(helloMagic)])
	}
	if v := binary.LittleEndian.Uint16(b[len(helloMagic):]); v != protocolVersion {
		return 0, Refuse(rejectVersion, "protocol version %d, this side speaks version %d: run the same build of the program on all ranks", v, protocolVersion)
	}
	n := int(binary.LittleEndian.Uint16(b[len(helloMagic)+2:]))
	if n < helloFixed || n > maxHello {
		return 0, Refuse(rejectHello, "hello of %d bytes: it has between %d and %d", n, helloFixed, maxHello)
	}
	return n, nil
}

// decodeHello decodes what follows the prefix. It keeps b.
func decodeHello(b []byte) (*hello, error) {
	kind, b, ok := wire.CutText(b)
	if !ok || len(kind) > maxKind || len(b) < helloFixed-1 {
		return nil, Refuse(rejectHello, "hello is cut short or names too long a kind")
	}
	h := &hello{kind: kind}
	b = b[copy(h.src[:], b):]
	b = b[copy(h.dst[:], b):]
	h.srcRank = binary.LittleEndian.Uint32(b)
	h.dstRank = binary.LittleEndian.Uint32(b[4:])
	b = b[8:]
	b = b[copy(h.nonce[:], b):]
	n := len(b) - macSize
	copy(h.mac[:], b[n:])
	h.addr = b[:n]
	return h, nil
}

func readHello(r io.Reader) (h *hello, raw []byte, err error) {
	raw = make([]byte, helloPrefix, 512)
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, nil, err
	}
	n, err := helloLength(raw)
	if err != nil {
		return nil, nil, err
	}
	raw = append(raw, make([]byte, n)...)
	if _, err := io.ReadFull(r, raw[helloPrefix:]); err != nil {
		return nil, nil, err
	}
	h, err = decodeHello(raw[helloPrefix:])
	return h, raw, err
}

func writeMsg(w io.Writer, t msgType, body []byte) error {
	b := append(make([]byte, 0, 3+len(body)), byte(t), byte(len(body)), byte(len(body)>>8))
	_, err := w.Write(append(b, body...))
	return err
}

// writeReject tells the peer why the connection is refused, if it can.
func writeReject(w io.Writer, e *rejectError) {
	text := e.text[:min(len(e.text), maxReject-1)]
	_ = writeMsg(w, msgReject, append([]byte{byte(e.code)}, text...))
}

var errOutOfTurn = fmt.Errorf("%w: handshake message out of turn", verbs.ErrProtocol)

// readMsg reads a message that must be of type want. A reject becomes an error of *rejectError.
func readMsg(r io.Reader, want msgType) ([]byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	t, n := msgType(head[0]), int(head[1])|int(head[2])<<8
	switch {
	case t == msgReject && n >= 1 && n <= maxReject:
	case t != want:
		return nil, fmt.Errorf("%w: type %d instead of %d", errOutOfTurn, t, want)
	case n != msgSize[t]:
		return nil, fmt.Errorf("%w: handshake message of type %d has %d bytes instead of %d", verbs.ErrProtocol, t, n, msgSize[t])
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	if t == msgReject {
		return nil, &rejectError{code: rejectCode(body[0]), text: string(body[1:])}
	}
	return body, nil
}

// proof shows that the side with that label has the secret. hello and challenge bind it to version,
// kind, devices, ranks and this connection.
func proof(secret []byte, label string, hello, challenge []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(label))
	m.Write(hello) // carries its own length
	m.Write(challenge)
	return m.Sum(nil)
}

func proven(secret []byte, label string, hello, challenge, mac []byte) bool {
	return hmac.Equal(mac, proof(secret, label, hello, challenge))
}
