package rc

import (
	"encoding/binary"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// Messages on the wire (TMO 2.3). All integers are big-endian, as TMH and RVH are.
//
//	EAGER   TMH, payload
//	RNDV    TMH, RVH, length of the message (8 bytes), RndvHdr.Extra (at most MaxExtra bytes)
//	FIN     TMH, RVH (zero); any length from TMHSize to MaxRndv is accepted (TMO 2.4)
//	NO_TAG  opcode byte, kind byte, message: the engine's control messages
//
// RVH.Len has 32 bits; it holds the length up to 2^32-1, and the software header the whole of it.
const (
	MaxRndv  = 64 // largest RNDV message: max_rndv_hdr_size of known devices (TMO 1.1)
	MaxExtra = MaxRndv - rndvSize
	MaxCtrl  = 256
	maxSmall = 96 // largest header written here, with its software header or FIN

	rndvSize = verbs.TMHSize + verbs.RVHSize + 8
	finSize  = verbs.TMHSize + verbs.RVHSize
	ctrlSize = 2
	ctrlKind = 1 // kind byte of a control message; others are free
)

// BufferSize is the size of a receive buffer that holds any message with that eager limit.
func BufferSize(maxEager int) int {
	return (max(verbs.TMHSize+maxEager, MaxRndv, ctrlSize+MaxCtrl) + 63) &^ 63
}

// PutEager encodes the header of an eager message and returns its size.
func PutEager(b []byte, appCtx uint32, tag uint64) int {
	verbs.TMH{Opcode: verbs.TMHEager, AppCtx: appCtx, Tag: tag}.Put(b)
	return verbs.TMHSize
}

// PutRndv encodes a rendezvous request and returns its size. The caller has checked len(h.Extra)
// against MaxExtra.
func PutRndv(b []byte, h *transport.RndvHdr) int {
	verbs.TMH{Opcode: verbs.TMHRndv, AppCtx: h.AppCtx, Tag: h.Tag}.Put(b)
	verbs.RVH{VA: h.VA, RKey: h.RKey, Len: shortLen(h.Len)}.Put(b[verbs.TMHSize:])
	binary.BigEndian.PutUint64(b[verbs.TMHSize+verbs.RVHSize:], h.Len)
	return rndvSize + copy(b[rndvSize:], h.Extra)
}

// shortLen is a length as RVH carries it: 2^32-1 where it is longer.
func shortLen(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// PutFin encodes a FIN and returns its size.
func PutFin(b []byte, appCtx uint32) int {
	verbs.TMH{Opcode: verbs.TMHFin, AppCtx: appCtx}.Put(b)
	verbs.RVH{}.Put(b[verbs.TMHSize:])
	return finSize
}

// PutCtrl encodes the header of a control message and returns its size.
func PutCtrl(b []byte) int {
	b[0], b[1] = byte(verbs.TMHNoTag), ctrlKind
	return ctrlSize
}

// Opcode returns the opcode of a message. An empty one counts as NO_TAG, as in devices.
func Opcode(msg []byte) verbs.TMHOpcode {
	if len(msg) == 0 {
		return verbs.TMHNoTag
	}
	return verbs.TMHOpcode(msg[0])
}

// Deliver passes a whole message, headers included, to the sink. The bytes come from a peer: every
// length is checked, and the error names the fault. The caller has read the opcode once, as the
// peer may still write to a lent message, and decisions by the opcode must stay valid. h is scratch
// memory.
func Deliver(sink transport.Sink, src int, op verbs.TMHOpcode, msg []byte, maxEager int, h *transport.RndvHdr) error {
	if op == verbs.TMHEager && len(msg) >= verbs.TMHSize {
		if len(msg)-verbs.TMHSize > maxEager {
			return fmt.Errorf("an eager message of %d bytes, the limit is %d", len(msg)-verbs.TMHSize, maxEager)
		}
		tmh := verbs.ParseTMH(msg)
		sink.Eager(src, tmh.AppCtx, tmh.Tag, msg[verbs.TMHSize:])
		return nil
	}
	return deliverOther(sink, src, op, msg, h)
}

func deliverOther(sink transport.Sink, src int, op verbs.TMHOpcode, msg []byte, h *transport.RndvHdr) error {
	switch {
	case op == verbs.TMHNoTag:
		return deliverCtrl(sink, src, msg)
	case op != verbs.TMHRndv && op != verbs.TMHFin && op != verbs.TMHEager:
		return fmt.Errorf("a message with unknown opcode %d", op)
	case len(msg) < verbs.TMHSize:
		return fmt.Errorf("a message of %d bytes with opcode %d, whose header alone has %d", len(msg), op, verbs.TMHSize)
	case len(msg) > MaxRndv:
		return fmt.Errorf("a message of %d bytes with opcode %d, which has at most %d", len(msg), op, MaxRndv)
	case op == verbs.TMHFin:
		sink.Fin(src, verbs.ParseTMH(msg).AppCtx)
		return nil
	}
	if err := ParseRndv(msg, h); err != nil {
		return err
	}
	sink.Rndv(src, h)
	return nil
}

// ParseRndv decodes a rendezvous request of at least TMHSize bytes. h.Extra is a part of msg.
func ParseRndv(msg []byte, h *transport.RndvHdr) error {
	if len(msg) < rndvSize {
		return fmt.Errorf("a rendezvous request of %d bytes, it has at least %d", len(msg), rndvSize)
	}
	tmh, rvh := verbs.ParseTMH(msg), verbs.ParseRVH(msg[verbs.TMHSize:])
	n := binary.BigEndian.Uint64(msg[verbs.TMHSize+verbs.RVHSize:])
	if rvh.Len != shortLen(n) {
		return fmt.Errorf("a rendezvous request whose two lengths, %d and %d, contradict each other", rvh.Len, n)
	}
	*h = transport.RndvHdr{AppCtx: tmh.AppCtx, Tag: tmh.Tag, VA: rvh.VA, RKey: rvh.RKey, Len: n, Extra: msg[rndvSize:]}
	return nil
}

func deliverCtrl(sink transport.Sink, src int, msg []byte) error {
	switch {
	case len(msg) < ctrlSize:
		return fmt.Errorf("a message of %d bytes, which does not tell its kind", len(msg))
	case msg[1] != ctrlKind:
		return fmt.Errorf("an untagged message of unknown kind %d", msg[1])
	case len(msg) > ctrlSize+MaxCtrl:
		return fmt.Errorf("a control message of %d bytes, the limit is %d", len(msg)-ctrlSize, MaxCtrl)
	}
	sink.Ctrl(src, msg[ctrlSize:])
	return nil
}
