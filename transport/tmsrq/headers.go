package tmsrq

import (
	"encoding/binary"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// A software rendezvous request is an eager message with immediate data 0, so that it is matched
// like any other (TMO 2.6, V17). Its app_ctx is the rank of the source, as in eager messages: if
// the device matches it, nothing else names the source until the payload has arrived. The payload,
// big-endian:
//
//	0  va      8 bytes
//	8  rkey    4
//	12 app_ctx 4, identifies the send
//	16 length  8
//	24 source  4
//	28 RndvHdr.Extra, at most format.MaxExtra bytes
const (
	rtsMark = 0  // immediate data
	rtsSize = 28 // payload without RndvHdr.Extra, bytes
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

// putRTS encodes a software rendezvous request of rank source, TMH included, and returns its size
// in bytes.
func putRTS(b []byte, h *transport.RndvHdr, source int) int {
	be, p := binary.BigEndian, b[format.PutEager(b, uint32(source), h.Tag):]
	be.PutUint64(p, h.VA)
	be.PutUint32(p[8:], h.RKey)
	be.PutUint32(p[12:], h.AppCtx)
	be.PutUint64(p[16:], h.Len)
	be.PutUint32(p[24:], uint32(source))
	return verbs.TMHSize + rtsSize + copy(p[rtsSize:], h.Extra)
}

// parseRTS decodes p, the payload of a software rendezvous request with this tag from rank src,
// into h. h.Extra is a part of p.
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

// parseIncomplete decodes p, the buffer of a receive that the device has matched with a rendezvous
// that it leaves to software, into h: there are TMH and RVH and nothing of the software header (TMO
// 6.7). A sender lets devices handle only rendezvous whose length fits into RVH.
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

// sourceOf returns the rank that a matched message claims to be from (TMO 2.6). It may be any
// number.
func sourceOf(tag uint64, appCtx uint32) int {
	if tag&packedTag != 0 {
		return int(tag >> sourceShift & sourceMask)
	}
	return int(appCtx)
}
