package mem

import (
	"sync/atomic"

	"github.com/tagmatch/tagmatch/verbs"
)

// Slot is one registered memory region as peers see it. Slots may lie in memory shared with
// peers, which map it read-only; all fields are accessed atomically. gen is the rkey while the
// region is valid, else 0.
type Slot struct {
	gen    uint32
	access uint32 // verbs.AccessFlags
	addr   uint64 // of the first byte, in the owner's address space
	length uint64
	_      uint64
}

// A key is the index of a slot and a generation. A slot is used again when more than rest
// others have become free before it, and then has the next generation: so a key comes back only
// after 4,095 x 2^14 registrations, 67 million, however many regions are live meanwhile. A peer's
// late request with an old key must not hit a new region.
const (
	IndexBits = 20
	IndexMask = Slots - 1
	Slots     = 1 << IndexBits
	rest      = 1 << 14

	// MaxRegions is how many regions a device can have registered at once.
	MaxRegions = Slots - rest

	// SlotBytes is the size of a slot in shared memory.
	SlotBytes = 32

	// PieceSlots is how many slots come into being at once, 128 KiB of them.
	PieceSlots = 1 << 12
	PieceBytes = PieceSlots * SlotBytes
	pieces     = Slots / PieceSlots
)

// Piece is a part of a table.
type Piece [PieceSlots]Slot

// Dir finds the pieces of a table; those that do not exist are nil.
type Dir [pieces]*Piece

// At is the slot that a key or an index names, or nil.
func (d *Dir) At(key uint32) *Slot {
	i := key & IndexMask
	if p := d[i/PieceSlots]; p != nil {
		return &p[i%PieceSlots]
	}
	return nil
}

// Allows reports whether a peer whose slot for rkey is s, or nil, lets n bytes at addr of
// that region be accessed with need. It is safe against changes by the peer meanwhile; to know that
// data copied afterwards was valid, ask again after the copy.
func Allows(s *Slot, rkey uint32, addr, n uint64, need verbs.AccessFlags) bool {
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
