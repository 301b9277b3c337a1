package rendezvous

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/tagmatch/tagmatch/internal/door"
)

// The rendezvous protocol, version 7. All integers are big-endian.
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
// side; ABORT, FAIL, GIVEUP, GONE, PEERGIVENUP may come at any time after it, ASK and REPLY after
// WELCOME. GIVEUP instead of waiting for WELCOME is answered by FAIL, which names the ranks that
// have not joined.
const (
	magic           = "tagmatch"
	protocolVersion = 7
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
	kindAsk
	kindReply
)

// message is the content of a frame.
type message interface {
	kind() kind
	// fields passes its fields to c, in their order.
	fields(c *codec)
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
		encoded []byte // body, once for all receivers; of one that was read what was; nil: not yet
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
	// byeMsg leaves the job. finished: all ranks have reached its end, and need not hear of it.
	byeMsg struct{ finished bool }
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
	// askMsg asks something of all ranks, see ask.go; rank is who asks.
	askMsg struct {
		rank     uint32
		number   uint32
		question string
	}
	// replyMsg to the hub: the answer to rank. From the hub: that of rank.
	replyMsg struct {
		rank   uint32
		number uint32
		why    string // there is none
		body   []byte
	}
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
func (*askMsg) kind() kind         { return kindAsk }
func (*replyMsg) kind() kind       { return kindReply }

func (m *helloMsg) fields(c *codec) {
	number(c, &m.rank, 4)
	number(c, &m.size, 4)
	c.flag(&m.secret)
	c.fixed(m.nonce[:])
	number(c, &m.relay, 2)
	number(c, &m.tls, 1)
	c.require(int(m.tls) < len(tlsKinds))
	c.text(&m.epoch, MaxEpoch)
	c.fixed(m.mac[:])
}

func (m *challengeMsg) fields(c *codec) { c.fixed(m.nonce[:]) }
func (m *proofMsg) fields(c *codec)     { c.fixed(m.mac[:]) }
func (m *acceptMsg) fields(c *codec)    { c.fixed(m.mac[:]) }

func (m *welcomeMsg) fields(c *codec) {
	c.fixed(m.jobID[:])
	n := uint8(len(m.secret))
	number(c, &n, 1)
	c.require(n == 0 || n == SecretSize)
	c.bytes(&m.secret, int(n))
	c.addr(&m.root)
	port, addr := m.parent.Port(), m.parent.Addr()
	number(c, &port, 2)
	c.addr(&addr)
	if c.reads {
		m.parent = netip.AddrPortFrom(addr, port)
	}
}

func (m *rejectMsg) fields(c *codec) {
	number(c, &m.code, 2)
	c.text(&m.reason, maxReason)
}

func (m *fenceMsg) fields(c *codec) {
	number(c, &m.seq, 4)
	c.entries(&m.entries, false)
}

func (m *releaseMsg) fields(c *codec) {
	if m.encoded != nil {
		c.b = append(c.b, m.encoded...)
		return
	}
	number(c, &m.seq, 4)
	c.entries(&m.entries, true)
}

func (m *abortMsg) fields(c *codec) {
	number(c, &m.rank, 4)
	number(c, &m.code, 4)
	c.text(&m.reason, maxReason)
}

func (m *failMsg) fields(c *codec)        { c.reason(&m.rank, &m.reason) }
func (m *giveUpMsg) fields(c *codec)      { c.reason(&m.seq, &m.reason) }
func (m *goneMsg) fields(c *codec)        { c.reason(&m.rank, &m.reason) }
func (m *peerGivenUpMsg) fields(c *codec) { c.reason(&m.rank, &m.reason) }
func (m *byeMsg) fields(c *codec)         { c.flag(&m.finished) }
func (m *wantMsg) fields(c *codec)        { number(c, &m.have, 4) }

func (m *askMsg) fields(c *codec) {
	number(c, &m.rank, 4)
	number(c, &m.number, 4)
	c.text(&m.question, MaxQuestion)
}

func (m *replyMsg) fields(c *codec) {
	number(c, &m.rank, 4)
	number(c, &m.number, 4)
	c.text(&m.why, maxReason)
	n := uint32(len(m.body))
	number(c, &n, 4)
	c.require(n <= MaxReply)
	c.bytes(&m.body, int(n))
}
