package soft

import (
	"sync/atomic"

	"github.com/tagmatch/tagmatch/verbs"
)

// region is one registered memory region as peers see it. Slots may lie in memory shared with
// peers, which map it read-only; all fields are accessed atomically. gen is the rkey while the
// region is valid, else 0.
type region struct {
	gen    uint32
	access uint32 // verbs.AccessFlags
	addr   uint64 // of the first byte, in the owner's address space
	length uint64
	_      uint64
}

// A key is the index of a slot and a generation. A slot is used again when more than regionRest
// others have become free before it, and then has the next generation: so a key comes back only
// after 4,095 x 2^14 registrations, 67 million, however many regions are live meanwhile. A peer's
// late request with an old key must not hit a new region.
const (
	regionIndexBits = 20
	regionIndexMask = regionSlots - 1
	regionSlots     = 1 << regionIndexBits
	regionRest      = 1 << 14

	// maxRegions is how many regions a device can have registered at once.
	maxRegions = regionSlots - regionRest

	// regionSlotBytes is the size of a slot in shared memory.
	regionSlotBytes = 32

	// pieceRegions is how many slots come into being at once, 128 KiB of them.
	pieceRegions = 1 << 12
	pieceBytes   = pieceRegions * regionSlotBytes
	regionPieces = regionSlots / pieceRegions
)

// regionPiece is a part of a table.
type regionPiece [pieceRegions]region

// regionDir finds the pieces of a table; those that do not exist are nil.
type regionDir [regionPieces]*regionPiece

// at is the slot that a key or an index names, or nil.
func (d *regionDir) at(key uint32) *region {
	i := key & regionIndexMask
	if p := d[i/pieceRegions]; p != nil {
		return &p[i%pieceRegions]
	}
	return nil
}

// regionAllows reports whether a peer whose slot for rkey is s, or nil, lets n bytes at addr of
// that region be accessed with need. It is safe against changes by the peer meanwhile; to know that
// data copied afterwards was valid, ask again after the copy.
func regionAllows(s *region, rkey uint32, addr, n uint64, need verbs.AccessFlags) bool {
	if s == nil || rkey == 0 || atomic.LoadUint32(&s.gen) != rkey {
		return false
	}
	start, size := atomic.LoadUint64(&s.addr), atomic.LoadUint64(&s.length)
	access := verbs.AccessFlags(atomic.LoadUint32(&s.access))
	if atomic.LoadUint32(&s.gen) != rkey {
		return false
	}
	if access&need != need || addr < start {
		return false
	}
	off := addr - start
	return off <= size && n <= size-off
}
