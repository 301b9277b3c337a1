package verbs

import (
	"encoding/binary"
	"math/bits"
)

// TMHOpcode is the first byte of every message to a tag-matching SRQ (TMO 2.3).
type TMHOpcode uint8

const (
	TMHNoTag TMHOpcode = 0 // never matched; only this byte is fixed
	TMHRndv  TMHOpcode = 1 // TMH, RVH, software header
	TMHFin   TMHOpcode = 2 // TMH, RVH: the end of a rendezvous
	TMHEager TMHOpcode = 3 // TMH, payload
)

// TMHSize and RVHSize are the encoded sizes, bytes.
const (
	TMHSize = 16
	RVHSize = 16
)

// TMH is the tag-matching header (struct ibv_tmh). The three reserved bytes are written as zero.
type TMH struct {
	Opcode TMHOpcode
	AppCtx uint32
	Tag    uint64
}

// Put encodes h, big-endian, into b[:TMHSize].
func (h TMH) Put(b []byte) {
	_ = b[TMHSize-1]
	// Who copies the header loads words, and would wait for narrower stores. Without the reversal
	// the compiler makes a store of its own of an opcode that is a constant.
	binary.LittleEndian.PutUint64(b, bits.ReverseBytes64(uint64(h.Opcode)<<56|uint64(h.AppCtx)))
	binary.BigEndian.PutUint64(b[8:], h.Tag)
}

// ParseTMH decodes b[:TMHSize]; the caller has checked the length.
func ParseTMH(b []byte) TMH {
	_ = b[TMHSize-1]
	return TMH{Opcode: TMHOpcode(b[0]), AppCtx: binary.BigEndian.Uint32(b[4:]), Tag: binary.BigEndian.Uint64(b[8:])}
}

// RVH is the rendezvous header (struct ibv_rvh).
type RVH struct {
	VA   uint64
	RKey uint32
	Len  uint32 // bytes
}

// Put encodes h, big-endian, into b[:RVHSize].
func (h RVH) Put(b []byte) {
	_ = b[RVHSize-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint32(b[12:], h.Len)
}

// ParseRVH decodes b[:RVHSize]; the caller has checked the length.
func ParseRVH(b []byte) RVH {
	_ = b[RVHSize-1]
	return RVH{VA: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Len: binary.BigEndian.Uint32(b[12:])}
}
