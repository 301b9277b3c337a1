package tmsrq

import (
	"encoding/binary"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// A software rendezvous request is an eager message with immediate data 0, so that it is matched
// like any other (TMO 2.6, V17). Its app_ctx is the source's rank, as in eager messages: where the
// device matches it, that is all there is to know the source by until the payload is there. The
// payload, big-endian:
//
//	0  va      8 bytes
//	8  rkey    4
//	12 app_ctx 4, identifies the send
//	16 length  8
//	24 source  4
//	28 RndvHdr.Extra, at most format.MaxExtra bytes
const (
	rtsMark = 0
	rtsSize = 28
	maxRTS  = rtsSize + format.MaxExtra

	// minLanding is the largest header that the device can put into a matched receive's buffer: a
	// software rendezvous request, or TMH and RVH of a rendezvous that does not fit (TMO 6.7).
	minLanding = max(maxRTS, verbs.TMHSize+verbs.RVHSize)
)

// Tags with this bit are packed 1 | context 11 | source 20 | tag 32, the others are the program's.
const (
	packedTag   = 1 << 63
	sourceShift = 32
	sourceMask  = 1<<20 - 1
)

// putRTS encodes a software rendezvous request, TMH included, and returns its size.
func putRTS(b []byte, h *transport.RndvHdr, source int) int {
	be, p := binary.BigEndian, b[format.PutEager(b, uint32(source), h.Tag):]
	be.PutUint64(p, h.VA)
	be.PutUint32(p[8:], h.RKey)
	be.PutUint32(p[12:], h.AppCtx)
	be.PutUint64(p[16:], h.Len)
	be.PutUint32(p[24:], uint32(source))
	return verbs.TMHSize + rtsSize + copy(p[rtsSize:], h.Extra)
}

// parseRTS decodes the payload of a software rendezvous request from rank sformat. h.Extra is a part of
// p.
func parseRTS(p []byte, tag uint64, src int, h *transport.RndvHdr) error {
	if len(p) < rtsSize || len(p) > maxRTS {
		return fmt.Errorf("a software rendezvous request of %d bytes, it has %d to %d", len(p), rtsSize, maxRTS)
	}
	be := binary.BigEndian
	if source := be.Uint32(p[24:]); int64(source) != int64(src) {
		return fmt.Errorf("a software rendezvous request of rank %d in the name of rank %d", src, source)
	}
	*h = transport.RndvHdr{Tag: tag, VA: be.Uint64(p), RKey: be.Uint32(p[8:]), AppCtx: be.Uint32(p[12:]), Len: be.Uint64(p[16:]),
		Extra: p[rtsSize:]}
	return nil
}

// parseIncomplete decodes what the device leaves in the buffer of a matched rendezvous that it
// gives to software: TMH and RVH, nothing of the software header (TMO 6.7). Only a rendezvous whose
// length RVH can hold goes that way.
func parseIncomplete(p []byte, tag uint64, h *transport.RndvHdr) error {
	if len(p) < verbs.TMHSize+verbs.RVHSize {
		return fmt.Errorf("a rendezvous whose headers have %d bytes", len(p))
	}
	tmh, rvh := verbs.ParseTMH(p), verbs.ParseRVH(p[verbs.TMHSize:])
	if tmh.Opcode != verbs.TMHRndv || tmh.Tag != tag {
		return fmt.Errorf("a rendezvous with opcode %d and tag %#x, it was matched by tag %#x", tmh.Opcode, tmh.Tag, tag)
	}
	*h = transport.RndvHdr{AppCtx: tmh.AppCtx, Tag: tag, VA: rvh.VA, RKey: rvh.RKey, Len: uint64(rvh.Len)}
	return nil
}

// sourceOf is the rank that a matched message says it is from (TMO 2.6). It is the peer's word.
func sourceOf(tag uint64, appCtx uint32) int {
	if tag&packedTag != 0 {
		return int(tag >> sourceShift & sourceMask)
	}
	return int(appCtx)
}
