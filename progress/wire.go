package progress

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/progress/internal/flow"
)

// Everything the engine itself puts on the wire, little endian, versioned; encodings only ever grow
// at the end.

// wireVersion is that of addresses, greetings, rendezvous headers and control messages.
const wireVersion = 8

// addressLen is what an address has before the transport's: the version.
const addressLen = 1

var errShort = errors.New("too short")

func encodeAddress(transport []byte) []byte {
	return append([]byte{wireVersion}, transport...)
}

// decodeAddress returns the transport's address, a part of b.
func decodeAddress(b []byte) (transport []byte, err error) {
	if len(b) < addressLen {
		return nil, errShort
	}
	if b[0] != wireVersion {
		return nil, fmt.Errorf("it speaks version %d of the engine's protocol, this rank version %d: "+
			"run the same build of the program on all ranks", b[0], wireVersion)
	}
	return b[addressLen:], nil
}

// greetingLen is what two engines tell each other when they connect.
//
//	0  version
//	1  reserved, 7 bytes
//	8  window: the credit that the peer has at this rank at the start, bytes
const greetingLen = 16

func encodeGreeting(window uint64) []byte {
	b := make([]byte, greetingLen)
	b[0] = wireVersion
	binary.LittleEndian.PutUint64(b[8:], window)
	return b
}

func decodeGreeting(b []byte) (window uint64, err error) {
	if len(b) < greetingLen {
		return 0, errShort
	}
	if b[0] != wireVersion {
		return 0, fmt.Errorf("version %d", b[0])
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}

// rndvExtra is the software header of a rendezvous request. With so many bytes the request fits
// into a line of a ring in shared memory.
//
//	0  version
//	1  flags, reserved
//	4  source rank
type rndvExtra struct {
	source uint32
}

const rndvExtraLen = 8

func (x rndvExtra) encode(b *[rndvExtraLen]byte) {
	*b = [rndvExtraLen]byte{wireVersion}
	binary.LittleEndian.PutUint32(b[4:], x.source)
}

func decodeRndvExtra(b []byte) (rndvExtra, error) {
	if len(b) < rndvExtraLen {
		return rndvExtra{}, errShort
	}
	if b[0] != wireVersion {
		return rndvExtra{}, fmt.Errorf("version %d", b[0])
	}
	return rndvExtra{source: binary.LittleEndian.Uint32(b[4:])}, nil
}

// ctrlKind is the kind of a control message.
type ctrlKind uint8

const (
	ctrlWithdraw  ctrlKind = 1 // id: the sender withdraws its rendezvous request
	ctrlWithdrawn ctrlKind = 2 // id: answer: it is gone; without this one a FIN comes
	ctrlAbort     ctrlKind = 3 // body: the reason, text that begins with that of ErrAborted

	ctrlHeld ctrlKind = 4 // sends to this rank are held up for credit, or no more: see heldLen
	ctrlWant ctrlKind = 5 // an answer to HELD: see wantLen

	ctrlUnreadable ctrlKind = 13 // id: the send, whose buffer cannot be read: both ends have failed

	ctrlNotice ctrlKind = 9 // body: for Config.Contexts

	ctrlAccused ctrlKind = 14 // the sender has given the peer up, as it broke the protocol
)

// heldLen is the body of HELD; id is the episode.
//
//	0  credit that the sender knows of, in all
//	8  credit that it has used, in all
const heldLen = 16

func encodeHeld(h flow.Held) []byte {
	b := make([]byte, 0, heldLen)
	b = binary.LittleEndian.AppendUint64(b, h.Allowed)
	return binary.LittleEndian.AppendUint64(b, h.Charged)
}

func decodeHeld(c ctrl) (flow.Held, error) {
	b := c.body
	if len(b) < heldLen {
		return flow.Held{}, errShort
	}
	return flow.Held{Episode: c.id, Allowed: binary.LittleEndian.Uint64(b), Charged: binary.LittleEndian.Uint64(b[8:])}, nil
}

// wantLen is the body of WANT; id is the episode that it answers.
//
//	0  credit of the peer, in all
//	8  tag
//	16 mask
//	24 slot: below flow.Slots, or flow.None or flow.All
//	25 reserved, 7 bytes
const wantLen = 32

func encodeWant(w flow.Want) []byte {
	b := make([]byte, wantLen)
	binary.LittleEndian.PutUint64(b, w.Allowed)
	binary.LittleEndian.PutUint64(b[8:], w.Tag)
	binary.LittleEndian.PutUint64(b[16:], w.Mask)
	b[24] = w.Slot
	return b
}

func decodeWant(c ctrl) (flow.Want, error) {
	b := c.body
	if len(b) < wantLen {
		return flow.Want{}, errShort
	}
	if slot := b[24]; slot >= flow.Slots && slot != flow.None && slot != flow.All {
		return flow.Want{}, fmt.Errorf("slot %d of %d", slot, flow.Slots)
	}
	return flow.Want{Episode: c.id, Slot: b[24], Allowed: binary.LittleEndian.Uint64(b),
		Tag: binary.LittleEndian.Uint64(b[8:]), Mask: binary.LittleEndian.Uint64(b[16:])}, nil
}

// A control message is ctrlLen bytes and then its body.
//
//	0  version
//	1  kind
//	2  reserved
//	4  id
type ctrl struct {
	kind ctrlKind
	id   uint32
	body []byte
}

const ctrlLen = 8

func (c ctrl) encode() []byte {
	b := make([]byte, ctrlLen, ctrlLen+len(c.body))
	b[0], b[1] = wireVersion, byte(c.kind)
	binary.LittleEndian.PutUint32(b[4:], c.id)
	return append(b, c.body...)
}

func decodeCtrl(b []byte) (ctrl, error) {
	if len(b) < ctrlLen {
		return ctrl{}, errShort
	}
	if b[0] != wireVersion {
		return ctrl{}, fmt.Errorf("version %d", b[0])
	}
	return ctrl{kind: ctrlKind(b[1]), id: binary.LittleEndian.Uint32(b[4:]), body: b[ctrlLen:]}, nil
}
