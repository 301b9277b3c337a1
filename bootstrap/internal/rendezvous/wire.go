package rendezvous

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/tagmatch/tagmatch/internal/door"
)

// The rendezvous protocol, version 5. All integers are big-endian.
//
//	connection  preface frame*, in both directions; the dialing side speaks first
//	preface     "tagmatch" version:u32
//	frame       length:u32 kind:u8 body mac
//	length      bytes of kind, body and mac
//	mac         nothing until WELCOME, then 32 bytes: see framer
//
// The preface, the frame header and REJECT must stay as they are in all versions, so that every
// version can tell every other why it is turned away.
//
//	dialing rank                     rank 0
//	HELLO   rank, nonce, mac   ──▶
//	                           ◀──   CHALLENGE nonce
//	PROOF   mac                ──▶
//	                           ◀──   ACCEPT    mac
//	handshake of TLS, unless both have it off: all that follows goes over TLS
//	                           ◀──   WELCOME   when all ranks have joined
//	FENCE   what was put       ──▶
//	                           ◀──   RELEASE   what all ranks have put, see relay
//	BYE                        ──▶
//
// The mac of HELLO tells a rank from a stranger by its first bytes, see package door. Rank 0 proves
// itself, and tells of the job, only to who has proved itself. REJECT ends a handshake from either
// side; ABORT, FAIL, GIVEUP, GONE, PEERGIVENUP may come at any time after it. GIVEUP instead of
// waiting for WELCOME is answered by FAIL, which names the ranks that have not joined.
const (
	magic           = "tagmatch"
	protocolVersion = 5
	prefaceSize     = len(magic) + 4
	headerSize      = 5

	nonceSize = door.NonceSize
	macSize   = 32
	jobIDSize = 16

	maxReason    = 512
	maxHandshake = 1024         // bytes of a frame before authentication
	maxFromRank  = MaxFence + 4 // of an authenticated rank; 4 for the sequence number
	maxFromRoot  = 1 << 30
	entrySize    = 2 + 4 // bytes of an entry of FENCE besides key and value
)

type kind uint8

const (
	kindHello kind = iota + 1
	kindChallenge
	kindProof
	kindWelcome
	kindReject
	kindFence
	kindRelease
	kindAbort
	kindFail
	kindGiveUp
	kindBye
	kindGone
	kindPeerGivenUp
	kindWant
	kindAccept
)

// message is the content of a frame.
type message interface {
	kind() kind
	// append adds the body to b.
	append(b []byte) []byte
}

type (
	helloMsg struct {
		rank, size uint32
		secret     bool // the sender has a job secret
		nonce      door.Nonce
		relay      uint16 // port at which it passes on RELEASE, see relay; 0: none
		tls        tlsKind
		epoch      string
		mac        [macSize]byte // see sign
	}
	challengeMsg struct{ nonce door.Nonce }
	proofMsg     struct{ mac [macSize]byte }
	acceptMsg    struct{ mac [macSize]byte }
	welcomeMsg   struct {
		jobID  [jobIDSize]byte
		secret []byte         // empty unless the rendezvous made it
		root   netip.Addr     // rank 0's address for other hosts; invalid: all ranks are here
		parent netip.AddrPort // from where RELEASE comes, see relay; invalid: from rank 0
	}
	rejectMsg struct {
		code   rejectCode
		reason string
	}
	fenceMsg struct {
		seq     uint32
		entries []entry
	}
	releaseMsg struct {
		seq     uint32
		entries []entry
		encoded []byte // body, encoded once for all receivers
	}
	abortMsg struct {
		rank   int32
		code   int32
		reason string
	}
	failMsg struct {
		rank   uint32
		reason string
	}
	giveUpMsg struct {
		seq    uint32 // of the fence; before WELCOME giveUpAlone or giveUpForAll
		reason string
	}
	byeMsg struct{}
	// goneMsg reports to the others that a rank left the job.
	goneMsg struct {
		rank   uint32
		reason string
	}
	// peerGivenUpMsg to the hub: the sender has given up rank. From the hub: rank has given up the
	// receiver.
	peerGivenUpMsg struct {
		rank   uint32
		reason string
	}
	// wantMsg asks for RELEASE by this connection, from that of the fence after have on.
	wantMsg struct{ have uint32 }
)

// Values of seq in a GIVEUP before WELCOME: whether the others continue to wait.
const (
	giveUpAlone  = 0
	giveUpForAll = 1
)

// entry is a value that rank has put; rank is not sent in FENCE.
type entry struct {
	rank  uint32
	key   string
	value []byte
}

type rejectCode uint16

const (
	rejectVersion rejectCode = iota + 1
	rejectSecret
	rejectSize
	rejectRank
	rejectEpoch
	rejectProtocol
	rejectEnded
	rejectStarted // may be tried again: this job may be the last one at that address
	rejectTaken   // may be tried again shortly: the end of another process of that rank may be near
	rejectTLS
)

// errStarted: the job at this address has all of its ranks. errTaken: it has this rank.
var (
	errStarted = errors.New("bootstrap: the job has begun")
	errTaken   = fmt.Errorf("%w: the rank has joined already", ErrRefused)
)

// cond is the condition of a rejection with code c.
func (c rejectCode) cond() error {
	switch c {
	case rejectVersion:
		return ErrVersion
	case rejectSecret:
		return ErrSecret
	case rejectStarted:
		return errStarted
	case rejectTaken:
		return errTaken
	}
	return ErrRefused
}

func (*helloMsg) kind() kind       { return kindHello }
func (*challengeMsg) kind() kind   { return kindChallenge }
func (*proofMsg) kind() kind       { return kindProof }
func (*welcomeMsg) kind() kind     { return kindWelcome }
func (*rejectMsg) kind() kind      { return kindReject }
func (*fenceMsg) kind() kind       { return kindFence }
func (*releaseMsg) kind() kind     { return kindRelease }
func (*abortMsg) kind() kind       { return kindAbort }
func (*failMsg) kind() kind        { return kindFail }
func (*giveUpMsg) kind() kind      { return kindGiveUp }
func (*byeMsg) kind() kind         { return kindBye }
func (*goneMsg) kind() kind        { return kindGone }
func (*peerGivenUpMsg) kind() kind { return kindPeerGivenUp }
func (*wantMsg) kind() kind        { return kindWant }
func (*acceptMsg) kind() kind      { return kindAccept }

var be = binary.BigEndian

func (m *helloMsg) append(b []byte) []byte {
	b = be.AppendUint32(b, m.rank)
	b = be.AppendUint32(b, m.size)
	b = appendBool(b, m.secret)
	b = append(b, m.nonce[:]...)
	b = append(be.AppendUint16(b, m.relay), byte(m.tls))
	b = appendString(b, m.epoch)
	return append(b, m.mac[:]...)
}

func (m *challengeMsg) append(b []byte) []byte { return append(b, m.nonce[:]...) }
func (m *acceptMsg) append(b []byte) []byte    { return append(b, m.mac[:]...) }

func (m *proofMsg) append(b []byte) []byte { return append(b, m.mac[:]...) }

func (m *welcomeMsg) append(b []byte) []byte {
	b = append(b, m.jobID[:]...)
	b = append(b, byte(len(m.secret)))
	b = append(b, m.secret...)
	b = appendString(b, string(m.root.AsSlice()))
	b = be.AppendUint16(b, m.parent.Port())
	return appendString(b, string(m.parent.Addr().AsSlice()))
}

func (m *rejectMsg) append(b []byte) []byte {
	return appendString(be.AppendUint16(b, uint16(m.code)), m.reason)
}

func (m *fenceMsg) append(b []byte) []byte {
	b = be.AppendUint32(b, m.seq)
	for i := range m.entries {
		b = m.entries[i].append(b)
	}
	return b
}

func (m *releaseMsg) append(b []byte) []byte {
	if m.encoded != nil {
		return append(b, m.encoded...)
	}
	b = be.AppendUint32(b, m.seq)
	for i := range m.entries {
		b = m.entries[i].append(be.AppendUint32(b, m.entries[i].rank))
	}
	return b
}

func (m *abortMsg) append(b []byte) []byte {
	b = be.AppendUint32(b, uint32(m.rank))
	b = be.AppendUint32(b, uint32(m.code))
	return appendString(b, m.reason)
}

func (m *failMsg) append(b []byte) []byte {
	return appendString(be.AppendUint32(b, m.rank), m.reason)
}

func (m *giveUpMsg) append(b []byte) []byte {
	return appendString(be.AppendUint32(b, m.seq), m.reason)
}

func (*byeMsg) append(b []byte) []byte { return b }

func (m *goneMsg) append(b []byte) []byte {
	return appendString(be.AppendUint32(b, m.rank), m.reason)
}

func (m *peerGivenUpMsg) append(b []byte) []byte {
	return appendString(be.AppendUint32(b, m.rank), m.reason)
}

func (m *wantMsg) append(b []byte) []byte { return be.AppendUint32(b, m.have) }

func (e *entry) append(b []byte) []byte {
	b = appendString(b, e.key)
	b = be.AppendUint32(b, uint32(len(e.value)))
	return append(b, e.value...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	return append(be.AppendUint16(b, uint16(len(s))), s...)
}

// cut shortens s to at most n bytes.
func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// decode decodes the body of a frame. Values in the result are slices of body.
func decode(k kind, body []byte) (message, error) {
	d := decoder{b: body}
	m := d.message(k)
	if m == nil {
		return nil, Errorf(ErrProtocol, "unknown frame kind %d", k)
	}
	if d.bad || len(d.b) != 0 {
		return nil, Errorf(ErrProtocol, "malformed frame of kind %d, %d bytes", k, len(body))
	}
	return m, nil
}

// decoder reads values from b; a missing value sets bad and reads as zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) message(k kind) message {
	switch k {
	case kindHello:
		m := &helloMsg{rank: d.u32(), size: d.u32(), secret: d.bool()}
		copy(m.nonce[:], d.take(nonceSize))
		m.relay = d.u16()
		m.tls = d.tlsKind()
		m.epoch = d.string(MaxEpoch)
		copy(m.mac[:], d.take(macSize))
		return m
	case kindChallenge:
		m := &challengeMsg{}
		copy(m.nonce[:], d.take(nonceSize))
		return m
	case kindAccept:
		m := &acceptMsg{}
		copy(m.mac[:], d.take(macSize))
		return m
	case kindProof:
		m := &proofMsg{}
		copy(m.mac[:], d.take(macSize))
		return m
	case kindWelcome:
		return d.welcome()
	case kindReject:
		return &rejectMsg{code: rejectCode(d.u16()), reason: d.string(maxReason)}
	case kindFence:
		return &fenceMsg{seq: d.u32(), entries: d.entries(false)}
	case kindRelease:
		return &releaseMsg{seq: d.u32(), entries: d.entries(true)}
	case kindAbort:
		return &abortMsg{rank: int32(d.u32()), code: int32(d.u32()), reason: d.string(maxReason)}
	case kindFail:
		return &failMsg{rank: d.u32(), reason: d.string(maxReason)}
	case kindGiveUp:
		return &giveUpMsg{seq: d.u32(), reason: d.string(maxReason)}
	case kindBye:
		return &byeMsg{}
	case kindGone:
		return &goneMsg{rank: d.u32(), reason: d.string(maxReason)}
	case kindPeerGivenUp:
		return &peerGivenUpMsg{rank: d.u32(), reason: d.string(maxReason)}
	case kindWant:
		return &wantMsg{have: d.u32()}
	}
	return nil
}

func (d *decoder) welcome() message {
	m := &welcomeMsg{}
	copy(m.jobID[:], d.take(jobIDSize))
	n := int(d.u8())
	if n != 0 && n != SecretSize {
		d.bad = true
	}
	m.secret = d.take(n)
	m.root = d.addr()
	port := d.u16()
	m.parent = netip.AddrPortFrom(d.addr(), port)
	return m
}

// addr decodes an address, which may be missing.
func (d *decoder) addr() netip.Addr {
	ip := d.string(16)
	addr, ok := netip.AddrFromSlice([]byte(ip))
	if !ok && ip != "" {
		d.bad = true
	}
	return addr
}

func (d *decoder) entries(ranked bool) []entry {
	var list []entry
	for !d.bad && len(d.b) > 0 {
		var e entry
		if ranked {
			e.rank = d.u32()
		}
		e.key = d.key(list)
		n := d.u32()
		if n > MaxValue || e.key == "" {
			d.bad = true
			break
		}
		e.value = d.take(int(n))
		list = append(list, e)
	}
	return list
}

// key decodes a key, which is mostly that of the entry before.
func (d *decoder) key(list []entry) string {
	n := int(d.u16())
	if n > MaxKey {
		d.bad = true
	}
	b := d.take(n)
	if k := len(list); k > 0 && list[k-1].key == string(b) {
		return list[k-1].key
	}
	return string(b)
}

func (d *decoder) take(n int) []byte {
	if d.bad || len(d.b) < n {
		d.bad = true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if v := d.take(2); v != nil {
		return be.Uint16(v)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return be.Uint32(v)
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.bad = true
	}
	return v == 1
}

func (d *decoder) tlsKind() tlsKind {
	k := d.u8()
	if int(k) >= len(tlsKinds) {
		d.bad = true
		return 0
	}
	return tlsKind(k)
}

func (d *decoder) string(most int) string {
	n := int(d.u16())
	if n > most {
		d.bad = true
	}
	return string(d.take(n))
}

func (k kind) String() string {
	names := [...]string{"HELLO", "CHALLENGE", "PROOF", "WELCOME", "REJECT", "FENCE", "RELEASE", "ABORT", "FAIL", "GIVEUP", "BYE", "GONE", "PEERGIVENUP", "WANT", "ACCEPT"}
	if i := int(k) - 1; i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}
