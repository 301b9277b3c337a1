package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// What transports tell each other by lines (verbs.Device.Tell) to connect their queue pairs.
// Integers are little-endian. Every change of HELLO or READY needs a new version; END stays what it
// is, since it is what another version is answered with.
//
//	HELLO  0 version, 1 kind, 2 MTU, 3 queue pairs, 4 reads as target, 5 reads as initiator,
//	       6 bytes of the greeting, 7 zero, 8 rank (4), 12 rkey of the credit cell (4),
//	       16 number of the transport (8), 24 address of the credit cell (8),
//	       32 number and first sequence number of each queue pair (4 each), then the greeting
//	READY  0 version, 1 kind, 2 zero (6), 8 number of the transport that is told (8)
//	END    0 version, 1 kind, 2 whether the teller accuses, 3 zero, 4 reason
const (
	toldVersion = 1

	helloSize   = 32
	pairSize    = 8
	readySize   = 16
	endSize     = 4
	maxPairs    = 2
	most24      = 1<<24 - 1 // of numbers and sequence numbers of queue pairs
	MaxReason   = 200       // bytes of End.Reason
	reasonCut   = "..."
	largestTold = max(helloSize+maxPairs*pairSize+transport.MaxGreeting, endSize+MaxReason)
)

var _ [verbs.MaxTell - largestTold]struct{}

const (
	kindHello byte = 1 + iota
	kindReady
	kindEnd
)

// Pair is a queue pair as the other end has to know it.
type Pair struct {
	Num uint32 // 24 bits
	PSN uint32 // sequence number of the first packet that it sends, 24 bits
}

// Hello begins a connection, at either end.
type Hello struct {
	Rank      int    // of the teller
	Number    uint64 // random, of the teller's transport: another one with its device has another
	Pairs     []Pair // one or two, whose meaning is the transport's
	MTU       verbs.MTU
	Target    int    // RDMA READs that each queue pair of the teller answers concurrently, at most 255
	Initiator int    // that each of them has outstanding
	CellAddr  uint64 // of the credit cell at the teller that the peer writes to, 8 bytes
	CellRKey  uint32
	Greeting  []byte // of the engine, at most transport.MaxGreeting bytes
}

// Ready says that the teller's queue pairs take messages.
type Ready struct {
	Number uint64 // of the transport that is told: of its HELLO
}

// End says that the teller has refused or ended the connection.
type End struct {
	Accuses bool   // because it takes the other end to have broken the protocol
	Reason  string // at most MaxReason bytes
}

// Encode returns the bytes that DecodeTold decodes.
func (h *Hello) Encode() []byte {
	b := []byte{toldVersion, kindHello, byte(h.MTU), byte(len(h.Pairs)), byte(h.Target), byte(h.Initiator), byte(len(h.Greeting)), 0}
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(h.Rank))
	b = le.AppendUint32(b, h.CellRKey)
	b = le.AppendUint64(b, h.Number)
	b = le.AppendUint64(b, h.CellAddr)
	for _, p := range h.Pairs {
		b = le.AppendUint32(b, p.Num)
		b = le.AppendUint32(b, p.PSN)
	}
	return append(b, h.Greeting...)
}

// Encode returns the bytes that DecodeTold decodes.
func (r *Ready) Encode() []byte {
	return binary.LittleEndian.AppendUint64([]byte{toldVersion, kindReady, 0, 0, 0, 0, 0, 0}, r.Number)
}

// Encode returns the bytes that DecodeTold decodes. A reason that is too long is cut.
func (e *End) Encode() []byte {
	b := []byte{toldVersion, kindEnd, 0, 0}
	if e.Accuses {
		b[2] = 1
	}
	reason := strings.ToValidUTF8(e.Reason, "?")
	if len(reason) > MaxReason {
		n := MaxReason - len(reasonCut)
		for !utf8.RuneStart(reason[n]) {
			n--
		}
		reason = reason[:n] + reasonCut
	}
	return append(b, reason...)
}

// DecodeTold decodes what a transport has told: it returns a *Hello, a *Ready or an *End, which
// retain nothing of b. An error that is *OtherVersion tells of a message that may be right there.
func DecodeTold(b []byte) (m any, err error) {
	if len(b) < endSize {
		return nil, fmt.Errorf("it tells a message of %d bytes", len(b))
	}
	switch version, k := b[0], b[1]; {
	case k == kindEnd:
		m, err = decodeEnd(b)
	case version != toldVersion:
		err = &OtherVersion{int(version), toldVersion}
	case k == kindHello:
		m, err = decodeHello(b)
	case k == kindReady:
		m, err = decodeReady(b)
	default:
		err = fmt.Errorf("it tells a message of unknown kind %d", k)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func decodeReady(b []byte) (*Ready, error) {
	if len(b) != readySize || string(b[2:8]) != "\x00\x00\x00\x00\x00\x00" {
		return nil, errors.New("it tells a READY that is none")
	}
	return &Ready{Number: binary.LittleEndian.Uint64(b[8:])}, nil
}

func decodeHello(b []byte) (*Hello, error) {
	d := decoder{b: b[2:]}
	h := &Hello{MTU: verbs.MTU(d.uint(1))}
	pairs := int(d.uint(1))
	h.Target, h.Initiator = int(d.uint(1)), int(d.uint(1))
	greeting, zero := int(d.uint(1)), d.uint(1)
	h.Rank, h.CellRKey, h.Number, h.CellAddr = int(d.uint(4)), uint32(d.uint(4)), d.uint(8), d.uint(8)
	if pairs < 1 || pairs > maxPairs {
		return nil, fmt.Errorf("it tells of %d pairs", pairs)
	}
	for range pairs {
		p := Pair{Num: uint32(d.uint(4)), PSN: uint32(d.uint(4))}
		if p.Num > most24 || p.PSN > most24 {
			return nil, fmt.Errorf("it tells of number %#x with sequence number %#x, which have 24 bits", p.Num, p.PSN)
		}
		h.Pairs = append(h.Pairs, p)
	}
	h.Greeting = append([]byte{}, d.cut(greeting)...)
	switch {
	case d.short || len(d.b) != 0 || zero != 0:
		return nil, fmt.Errorf("it tells a HELLO of %d bytes, with %d pairs and a greeting of %d bytes", len(b), pairs, greeting)
	case greeting > transport.MaxGreeting:
		return nil, fmt.Errorf("its greeting has %d bytes, the limit is %d", greeting, transport.MaxGreeting)
	case h.MTU < verbs.MTU256 || h.MTU > verbs.MTU4096:
		return nil, fmt.Errorf("it tells of the MTU code %d: there are 1 to 5", h.MTU)
	case h.Rank >= MaxRanks:
		return nil, fmt.Errorf("it tells that it is rank %d", h.Rank)
	}
	return h, nil
}

func decodeEnd(b []byte) (*End, error) {
	if b[2] > 1 || b[3] != 0 || len(b) > endSize+MaxReason {
		return nil, fmt.Errorf("it tells an END of %d bytes that is none", len(b))
	}
	return &End{Accuses: b[2] == 1, Reason: strings.ToValidUTF8(string(b[endSize:]), "?")}, nil
}
