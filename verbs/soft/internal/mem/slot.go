package mem

import (
	"sync/atomic"

	"github.com/tagmatch/tagmatch/verbs"
)

// Slot is one registered memory region as peers see it. Slots may lie in shared memory that peers
// map read-only. All fields are accessed atomically.
type Slot struct {
	key    uint64 // access (verbs.AccessFlags) << 32 | rkey; 0: not registered for peers
	addr   uint64 // of the first byte, in the owner's address space
	length uint64 // bytes
	// home is the key of the shared region that this one lies in, or 0. In the slot of a shared
	// region itself it is isShared and the number of a descriptor of the owner's; in that of memory
	// which peers must not copy from it is isApart (Table.Apart).
	home uint64
}

const (
	isShared = 1 << 63
	isApart  = 1 << 62
)

// A key is the index of a slot and, above it, a generation, so that a peer's late request with an
// old key does not reach a new region. Free slots are used again in the order in which they became
// free, and only while more than rest of them are free: a key comes back after 4,095 x 2^14
// registrations (67 million), however many regions are registered meanwhile.
const (
	IndexBits = 20
	IndexMask = Slots - 1
	Slots     = 1 << IndexBits
	rest      = 1 << 14

	// MaxRegions is how many regions a device can have registered at once.
	MaxRegions = Slots - rest

	// SlotBytes is the size of a slot in shared memory.
	SlotBytes = 32

	// PieceSlots is how many slots are allocated at once, 128 KiB of them.
	PieceSlots = 1 << 12
	PieceBytes = PieceSlots * SlotBytes
	pieces     = Slots / PieceSlots
)

// Piece is a part of a table's slots.
type Piece [PieceSlots]Slot

// Dir lists the pieces of a table; those that were not needed yet are nil.
type Dir [pieces]*Piece

// At returns the slot of a key or an index, or nil if its piece does not exist.
func (d *Dir) At(key uint32) *Slot {
	i := key & IndexMask
	if p := d[i/PieceSlots]; p != nil {
		return &p[i%PieceSlots]
	}
	return nil
}

// Allows reports whether s, a peer's slot for rkey or nil, allows access to n bytes at addr with
// the rights in need. The peer may change the slot meanwhile. Who copies data after Allows must
// call it once more after the copy, behind a LoadBarrier, to know that the data is valid.
func Allows(s *Slot, rkey uint32, addr, n uint64, need verbs.AccessFlags) bool {
	if s == nil {
		return false
	}
	key := atomic.LoadUint64(&s.key)
	start, size := atomic.LoadUint64(&s.addr), atomic.LoadUint64(&s.length)
	if access := verbs.AccessFlags(key >> 32); uint32(key) != rkey || !s.is(rkey) || access&need != need || addr < start {
		return false
	}
	off := addr - start
	return off <= size && n <= size-off
}

// is reports whether the slot is that of region rkey.
func (s *Slot) is(rkey uint32) bool { return rkey != 0 && uint32(atomic.LoadUint64(&s.key)) == rkey }

// Home returns the key of the shared region that region rkey, whose slot is s, lies in; 0: none. As
// for Allows, the peer may change the slot meanwhile.
func Home(s *Slot, rkey uint32) uint32 {
	if s == nil || !s.is(rkey) {
		return 0
	}
	if home := atomic.LoadUint64(&s.home); home&(isShared|isApart) == 0 {
		return uint32(home)
	}
	return 0
}

// Apart reports whether region rkey, whose slot is s, must not be copied from.
func Apart(s *Slot, rkey uint32) bool {
	return s != nil && s.is(rkey) && atomic.LoadUint64(&s.home)&isApart != 0
}

// SharedMemory is where a shared region of a peer is.
type SharedMemory struct {
	Addr, Len uint64
	FD        int // of the peer
}

// Shared describes the shared region rkey, whose slot is s; false: it is none.
func Shared(s *Slot, rkey uint32) (m SharedMemory, ok bool) {
	if s == nil || !s.is(rkey) {
		return m, false
	}
	home := atomic.LoadUint64(&s.home)
	m = SharedMemory{atomic.LoadUint64(&s.addr), atomic.LoadUint64(&s.length), int(int32(home))}
	return m, home&isShared != 0 && m.FD >= 0 && s.is(rkey)
}
