package soft

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// maxSpare is how many memRegions are kept for later registrations.
const maxSpare = 1 << 14

var errRegionsFull = errors.New("too many memory regions")

// regionTable is the device's registered memory. What is in dir is what peers check before they
// touch memory; own is this side of it. Slots come into being as they are needed, and free ones are
// used again in the order in which they became free, when more than regionRest are. Owned by the
// device's owner.
type regionTable struct {
	dir        *regionDir
	more       func(k int) (*regionPiece, error) // makes piece k, of zeros
	own        []ownSlot                         // one a slot that was ever used
	head, tail uint32                            // of the queue of free slots, if nfree is not 0
	nfree      int
	live       int
	spare      *memRegion // without a slot; the last one freed is used first
	nspare     int
	kept       bool // in keptTables
	inv        *regionChecks
}

// ownSlot is what the owner alone knows of a slot.
type ownSlot struct {
	r    *memRegion // nil: free
	next uint32     // key of the next registration
	link uint32     // the slot that became free after this one
}

// keptTables holds every table that has registered memory until its device is closed: the runtime
// panics when pinned memory is collected, and a program that forgets a device shall lose memory,
// not crash.
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

// memRegion is the owner's side of a slot, and the verbs.MR handed out. The object is used again
// for a later region, so that registering allocates nothing: an MR must not be used after Dereg.
type memRegion struct {
	t      *regionTable
	next   *memRegion // in regionTable.spare
	rkey   uint32     // 0: not registered
	access verbs.AccessFlags
	pd     *protDomain // nil for regions that the device registers itself
	addr   uint64
	buf    []byte
	pin    runtime.Pinner
}

// newRegionTable makes a table whose pieces lie on the heap.
func newRegionTable() *regionTable {
	t := &regionTable{dir: new(regionDir), more: heapPiece}
	if invariant.Enabled {
		t.inv = newRegionChecks()
	}
	return t
}

func heapPiece(int) (*regionPiece, error) { return new(regionPiece), nil }

// rehome says who makes the pieces, before any region is registered. The first is made at once, so
// that a device which cannot have even that fails when it is opened.
func (t *regionTable) rehome(more func(k int) (*regionPiece, error)) error {
	if len(t.own) != 0 {
		panic("soft: regionTable.rehome after use")
	}
	t.more = more
	first, err := more(0)
	t.dir[0] = first
	return err
}

// toHeap lets the table go on without the memory that its pieces lie in.
func (t *regionTable) toHeap() {
	dir := new(regionDir)
	for k, p := range t.dir {
		if p != nil {
			dir[k] = new(regionPiece)
			*dir[k] = *p
		}
	}
	t.dir, t.more = dir, heapPiece
}

// take finds a slot for a new region.
func (t *regionTable) take() (uint32, error) {
	if t.nfree <= regionRest {
		return t.fresh()
	}
	i := t.head
	t.head = t.own[i].link
	t.nfree--
	return i, nil
}

// fresh takes a slot that was never used.
func (t *regionTable) fresh() (uint32, error) {
	if t.live == maxRegions { // of those that are free now, none has rested long enough
		return 0, errRegionsFull
	}
	i := uint32(len(t.own))
	if k := i / pieceRegions; t.dir[k] == nil {
		p, err := t.more(int(k))
		if err != nil {
			return 0, err
		}
		t.dir[k] = p
	}
	t.own = append(t.own, ownSlot{next: 1<<regionIndexBits | i})
	return i, nil
}

// put queues a slot that has become free.
func (t *regionTable) put(i uint32) {
	if t.nfree == 0 {
		t.head = i
	} else {
		t.own[t.tail].link = i
	}
	t.tail = i
	t.nfree++
}

// register makes a region. Its key serves as rkey and lkey and is never 0.
func (t *regionTable) register(buf []byte, access verbs.AccessFlags, pd *protDomain) (*memRegion, error) {
	i, err := t.take()
	if err != nil {
		return nil, err
	}
	t.live++
	if !t.kept {
		t.keep()
	}
	r := t.spare
	if r == nil {
		r = &memRegion{t: t}
	} else {
		t.spare, r.next = r.next, nil
		t.nspare--
	}
	o := &t.own[i]
	o.r = r
	r.pin.Pin(&buf[0])
	r.rkey, r.buf, r.access, r.pd, r.addr = o.next, buf, access, pd, addrOf(buf)
	// gen last: a peer that reads the key sees the rest. The stores are atomic, hence ordered on
	// every architecture.
	s := t.dir.at(i)
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
	atomic.StoreUint32(&t.dir.at(i).gen, 0)
	o := &t.own[i]
	o.r, o.next = nil, r.rkey+1<<regionIndexBits
	if o.next>>regionIndexBits == 0 { // generation 0 would make the key of slot 0 zero
		o.next += 1 << regionIndexBits
	}
	r.rkey, r.buf, r.pd = 0, nil, nil
	r.pin.Unpin()
	if t.nspare < maxSpare {
		r.next, t.spare = t.spare, r
		t.nspare++
	}
	t.live--
	t.put(i)
}

// invalidate ends what peers may do with a region of pd; false if there is none. Its owner can use
// it on, and deregister it.
func (t *regionTable) invalidate(pd *protDomain, rkey uint32) bool {
	r := t.find(rkey)
	if r == nil || r.pd != pd {
		return false
	}
	r.access &= verbs.AccessLocalWrite
	if invariant.Enabled {
		t.inv.invalidated(rkey)
	}
	atomic.StoreUint32(&t.dir.at(rkey).gen, 0)
	return true
}

// find returns the region of a key, or nil.
func (t *regionTable) find(key uint32) *memRegion {
	i := int(key & regionIndexMask)
	if i >= len(t.own) {
		return nil
	}
	if r := t.own[i].r; r != nil && r.rkey == key {
		return r
	}
	return nil
}

// resolve gives the n bytes at addr of region rkey of protection domain pd for a peer that needs
// the rights in need. A transfer of no bytes is not checked, as on InfiniBand.
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
