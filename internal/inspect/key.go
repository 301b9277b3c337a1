package inspect

import "fmt"

// Tags of the engine: those of Comms are 1 | context 11 | source 20 | tag 32, raw ones have no
// first bit. See Comm in package p2p, and package contexts.
const (
	ofComm       = 1 << 63
	contextShift = 52
	contexts     = 1 << 11
	tagMask      = 1<<32 - 1
)

// KeyOf is what a program gave for a tag and a mask of the engine: a raw tag and mask, or a tag and
// its Comm.
func KeyOf(tag, mask uint64) Key {
	if tag&ofComm == 0 {
		k := Key{Comm: CommRaw, Tag: tag, Any: mask&^ofComm == 0}
		if mask|ofComm != ^uint64(0) {
			k.Mask = mask &^ ofComm
		}
		return k
	}
	k := Key{Tag: tag & tagMask, Any: mask&tagMask == 0}
	switch context := tag >> contextShift & (contexts - 1); context {
	case 0:
		k.Comm = CommWorld
	case contexts - 1:
		k.Comm = CommLibrary
	default:
		k.Comm = fmt.Sprintf("Comm %d", context)
	}
	return k
}

// CommOf is KeyOf for the tag of a message.
func CommOf(tag uint64) (comm string, own uint64) {
	k := KeyOf(tag, ^uint64(0))
	return k.Comm, k.Tag
}
