package format

import (
	"encoding/binary"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// The layout of messages (TMO 2.3). All integers are big-endian, as TMH and RVH are.
//
//	EAGER   TMH, payload
//	RNDV    TMH, RVH, length of the message (8 bytes), RndvHdr.Extra (at most MaxExtra bytes)
//	FIN     TMH, RVH (zero); any length from TMHSize to maxRndv is accepted (TMO 2.4)
//	NO_TAG  opcode byte, kind byte, message: the engine's control messages
//
// RVH.Len has 32 bits; it holds the length up to 2^32-1, and the software header the whole of it.
const (
	MaxExtra = maxRndv - rndvSize // largest RndvHdr.Extra, bytes
	MaxCtrl  = 256                // largest control message, bytes, without its header
	MaxSmall = 96                 // no message but EAGER and NO_TAG is longer, headers included

	CtrlSize = 2 // header of a control message, bytes
	CtrlKind = 1 // kind byte of a control message; other kinds are free

	maxRndv  = 64 // largest RNDV message, bytes: max_rndv_hdr_size of known devices (TMO 1.1)
	rndvSize = verbs.TMHSize + verbs.RVHSize + 8
	finSize  = verbs.TMHSize + verbs.RVHSize
)

// BufferSize is the size of a buffer, in bytes, that holds any message of a job whose eager limit
// is maxEager bytes. It is a multiple of 64.
func BufferSize(maxEager int) int {
	return (max(verbs.TMHSize+maxEager, maxRndv, CtrlSize+MaxCtrl) + 63) &^ 63
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
	b[0], b[1] = byte(verbs.TMHNoTag), CtrlKind
	return CtrlSize
}

// Opcode returns the opcode of a message. An empty one counts as NO_TAG, as in devices.
func Opcode(msg []byte) verbs.TMHOpcode {
	if len(msg) == 0 {
		return verbs.TMHNoTag
	}
	return verbs.TMHOpcode(msg[0])
}

// IsEager reports whether msg is an eager message with at most maxEager bytes of payload: that
// Deliver would give it to Sink.Eager. It is small enough to be inlined, as ParseTMH is.
func IsEager(msg []byte, maxEager int) bool {
	return len(msg) >= verbs.TMHSize && len(msg)-verbs.TMHSize <= maxEager && msg[0] == byte(verbs.TMHEager)
}

// Deliver decodes a whole message from rank src, headers included, and calls the method of the sink
// that it is for; what it lends is a part of msg. The error says how the message breaks the
// protocol; the sink was not called then. op is Opcode(msg), which the caller has read once: a peer
// may still write to a message that the device lends, and all decisions must be by the same opcode.
// h is memory for the decoded request, so that none is allocated.
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
	case len(msg) > maxRndv:
		return fmt.Errorf("a message of %d bytes with opcode %d, which has at most %d", len(msg), op, maxRndv)
	case op == verbs.TMHFin:
		sink.Fin(src, verbs.ParseTMH(msg).AppCtx)
		return nil
	}
	if err := parseRndv(msg, h); err != nil {
		return err
	}
	sink.Rndv(src, h)
	return nil
}

// parseRndv decodes a rendezvous request of at least TMHSize bytes. h.Extra is a part of msg.
func parseRndv(msg []byte, h *transport.RndvHdr) error {
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
	case len(msg) < CtrlSize:
		return fmt.Errorf("a message of %d bytes, which does not tell its kind", len(msg))
	case msg[1] != CtrlKind:
		return fmt.Errorf("an untagged message of unknown kind %d", msg[1])
	case len(msg) > CtrlSize+MaxCtrl:
		return fmt.Errorf("a control message of %d bytes, the limit is %d", len(msg)-CtrlSize, MaxCtrl)
	}
	sink.Ctrl(src, msg[CtrlSize:])
	return nil
}
