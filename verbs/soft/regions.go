package soft

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// region is one registered memory region as peers see it. Slots may lie in memory shared with peers, which map it
// read-only; all fields are accessed atomically. gen is the rkey while the region is valid, else 0.
type region struct {
	gen    uint32
	access uint32 // verbs.AccessFlags
	addr   uint64 // of the first byte, in the owner's address space
	length uint64
	_      uint64
}

const (
	// maxRegions is how many regions a device can have registered at once.
	maxRegions = 1 << regionIndexBits
	// regionSlotBytes is the size of one slot in shared memory.
	regionSlotBytes = 32

	regionIndexBits = 14
	regionIndexMask = maxRegions - 1
	// regionStart slots are in rotation from the start, so that an rkey comes back only after 2^18 x 256 registrations:
	// a peer's late request with an old rkey must not hit a new region.
	regionStart = 256
)

var errRegionsFull = errors.New("too many memory regions")

// regionTable is the device's registered memory. The owner's side of it (memRegion) holds the slices; slots are what peers
// check before they touch memory. Owned by the device's owner.
type regionTable struct {
	slots []region
	own   []*memRegion // one a slot that was ever used
	free  []uint16     // ring of free slots, oldest first
	head  int
	nfree int
	live  int
	kept  bool // in keptTables
	inv   *regionChecks
}

// keptTables holds every table that has registered memory until its device is closed: the runtime panics when pinned memory
// is collected, and a program that forgets a device shall lose memory, not crash.
var keptTables struct {
	sync.Mutex
	m map[*regionTable]bool
}

func (t *regionTable) keep() {
	t.kept = true
	keptTables.Lock()
	defer keptTables.Unlock()
	if keptTables.m == nil {
		keptTables.m = make(map[*regionTable]bool)
	}
	keptTables.m[t] = true
}

// close lets the table go, unless regions are still registered.
func (t *regionTable) close() {
	if t.kept && t.live == 0 {
		keptTables.Lock()
		defer keptTables.Unlock()
		delete(keptTables.m, t)
		t.kept = false
	}
}

// memRegion is the owner's side of a slot, and the verbs.MR handed out. The object is used again for a later region, so
// that registering allocates nothing: an MR must not be used after Dereg.
type memRegion struct {
	t      *regionTable
	rkey   uint32 // 0: not registered
	next   uint32 // rkey of the next registration
	access verbs.AccessFlags
	pd     *protDomain // nil for regions that the device registers itself
	addr   uint64
	buf    []byte
	pin    runtime.Pinner
}

// newRegionTable makes a table over slots, which must be maxRegions long and zero; nil: on the heap.
func newRegionTable(slots []region) *regionTable {
	t := &regionTable{free: make([]uint16, maxRegions)}
	if invariant.Enabled {
		t.inv = newRegionChecks()
	}
	t.rehome(slots)
	t.grow(regionStart)
	return t
}

// rehome moves the slots, before any region is registered. Memory that peers map must come in zeroed.
func (t *regionTable) rehome(slots []region) {
	if slots == nil {
		slots = make([]region, maxRegions)
	}
	if len(slots) != maxRegions || t.live != 0 {
		panic("soft: regionTable.rehome after use or with a wrong size")
	}
	t.slots = slots
}

// grow puts n more slots into rotation.
func (t *regionTable) grow(n int) {
	for range min(n, maxRegions-len(t.own)) {
		i := len(t.own)
		t.own = append(t.own, &memRegion{t: t, next: 1<<regionIndexBits | uint32(i)})
		t.put(uint16(i))
	}
}

func (t *regionTable) put(i uint16) {
	t.free[(t.head+t.nfree)&regionIndexMask] = i
	t.nfree++
}

// register makes a region. Its key serves as rkey and lkey and is never 0.
func (t *regionTable) register(buf []byte, access verbs.AccessFlags, pd *protDomain) (*memRegion, error) {
	if t.nfree == 0 {
		t.grow(len(t.own))
		if t.nfree == 0 {
			return nil, errRegionsFull
		}
	}
	i := t.free[t.head&regionIndexMask]
	t.head = (t.head + 1) & regionIndexMask
	t.nfree--
	t.live++
	if !t.kept {
		t.keep()
	}
	r := t.own[i]
	r.pin.Pin(&buf[0])
	r.rkey, r.buf, r.access, r.pd, r.addr = r.next, buf, access, pd, addrOf(buf)
	// gen last: a peer that reads the key sees the rest. The stores are atomic, hence ordered on every architecture.
	s := &t.slots[i]
	atomic.StoreUint64(&s.addr, r.addr)
	atomic.StoreUint64(&s.length, uint64(len(buf)))
	atomic.StoreUint32(&s.access, uint32(access))
	atomic.StoreUint32(&s.gen, r.rkey)
	if invariant.Enabled {
		t.inv.registered(r)
	}
	return r, nil
}

// remove withdraws a region; an unknown key is ignored.
func (t *regionTable) remove(rkey uint32) {
	r := t.find(rkey)
	if r == nil {
		return
	}
	i := rkey & regionIndexMask
	if invariant.Enabled {
		t.inv.removed(rkey)
	}
	atomic.StoreUint32(&t.slots[i].gen, 0)
	r.next = r.rkey + 1<<regionIndexBits
	if r.next>>regionIndexBits == 0 { // generation 0 would make the key of slot 0 zero
		r.next += 1 << regionIndexBits
	}
	r.rkey, r.buf, r.pd = 0, nil, nil
	r.pin.Unpin()
	t.live--
	t.put(uint16(i))
}

// invalidate ends what peers may do with a region of pd; false if there is none. Its owner can use it on, and deregister it.
func (t *regionTable) invalidate(pd *protDomain, rkey uint32) bool {
	r := t.find(rkey)
	if r == nil || r.pd != pd {
		return false
	}
	r.access &= verbs.AccessLocalWrite
	if invariant.Enabled {
		t.inv.invalidated(rkey)
	}
	atomic.StoreUint32(&t.slots[rkey&regionIndexMask].gen, 0)
	return true
}

// find returns the region of a key, or nil.
func (t *regionTable) find(key uint32) *memRegion {
	i := int(key & regionIndexMask)
	if key == 0 || i >= len(t.own) || t.own[i].rkey != key {
		return nil
	}
	return t.own[i]
}

// resolve gives the n bytes at addr of region rkey of protection domain pd for a peer that needs the rights in need. A
// transfer of no bytes is not checked, as on InfiniBand.
func (t *regionTable) resolve(pd *protDomain, rkey uint32, addr, n uint64, need verbs.AccessFlags) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	r := t.find(rkey)
	if r == nil || r.access&need != need || r.pd != pd || addr < r.addr {
		return nil, false
	}
	off, size := addr-r.addr, uint64(len(r.buf))
	if off > size || n > size-off {
		return nil, false
	}
	return r.buf[off : off+n : off+n], true
}

// local reports whether data lies in region lkey of protection domain pd with the rights in need.
func (t *regionTable) local(pd *protDomain, lkey uint32, data []byte, need verbs.AccessFlags) bool {
	if len(data) == 0 {
		return true
	}
	_, ok := t.resolve(pd, lkey, addrOf(data), uint64(len(data)), need)
	return ok
}

// regionAllows reports whether a peer whose table is slots lets n bytes at addr of region rkey be accessed with need.
// It is safe against changes by the peer meanwhile; to know that data copied afterwards was valid, ask again after the
// copy.
func regionAllows(slots []region, rkey uint32, addr, n uint64, need verbs.AccessFlags) bool {
	i := int(rkey & regionIndexMask)
	if rkey == 0 || i >= len(slots) {
		return false
	}
	s := &slots[i]
	if atomic.LoadUint32(&s.gen) != rkey {
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
