// Package mem holds a device's memory regions, in a table that peers on the same host can map.
package mem

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// maxSpare is the most Regions that are kept for later registrations.
const maxSpare = 1 << 14

var errFull = errors.New("too many memory regions")

// Table holds the memory regions of a device, whose owner alone uses it. Slots are allocated as
// they are needed.
type Table struct {
	dir        *Dir                        // what peers check before they access memory
	more       func(k int) (*Piece, error) // allocates piece k, of zeros
	apart      func(buf []byte) bool       // see Apart; nil: none is
	own        []ownSlot                   // by index: every slot that was ever used
	head, tail uint32                      // queue of free slots; undefined when nfree is 0
	nfree      int                         // free slots, all of which are queued
	live       int                         // regions that are registered
	readable   int                         // of these, regions that peers may read
	spare      *Region                     // stack of Regions to use again, at most maxSpare
	nspare     int
	kept       bool     // in kept
	shared     []*Share // by address
	inv        *checks
}

// ownSlot is the part of a slot that peers do not see.
type ownSlot struct {
	r    *Region // nil: free
	next uint32  // key of the next registration
	link uint32  // the next slot of the queue of free ones
	home bool    // Slot.home is not 0
}

// kept holds every table that has registered memory until its device is closed. The runtime panics
// if pinned memory is collected: a program that forgets to close a device should leak memory and
// not crash.
var kept struct {
	sync.Mutex
	m    map[*Table]bool
	bufs [][]byte // see Retain
}

// Retain keeps the memory of a region for the life of the process: a peer may write to it, and must
// not find something else there.
func (t *Table) Retain(key uint32) {
	if r := t.Find(key); r != nil {
		kept.Lock()
		defer kept.Unlock()
		kept.bufs = append(kept.bufs, r.buf)
		r.kept = true
	}
}

func (t *Table) keep() {
	t.kept = true
	kept.Lock()
	defer kept.Unlock()
	if kept.m == nil {
		kept.m = make(map[*Table]bool)
	}
	kept.m[t] = true
}

// Close allows the table to be collected, unless regions are still registered.
func (t *Table) Close() {
	if t.kept && t.live == 0 {
		kept.Lock()
		defer kept.Unlock()
		delete(kept.m, t)
		t.kept = false
	}
}

// Region is a memory region (verbs.MR). It must not be used after Dereg: so that registering
// allocates nothing, the object is used again for a later region.
type Region struct {
	t      *Table
	next   *Region // in Table.spare
	key    uint32  // 0: not registered
	access verbs.AccessFlags
	open   bool    // peers have rights to it, or may map it: its slot is filled
	domain *Domain // nil for Share's
	addr   uint64
	buf    []byte
	share  *Share // that buf lies in, or nil
	kept   bool   // see Table.Retain
	pin    runtime.Pinner
}

func (r *Region) LKey() uint32 { return r.key }
func (r *Region) RKey() uint32 { return r.key }
func (r *Region) Addr() uint64 { return r.addr }
func (r *Region) Len() int     { return len(r.buf) }

// Dereg deregisters the region, if it is quiet.
func (r *Region) Dereg() error {
	if r.key == 0 {
		return &verbs.Error{Op: "dereg_mr", Errno: syscall.EINVAL, Detail: "the memory region is gone already"}
	}
	if r.domain != nil && invariant.Enabled {
		defer r.domain.Enter("dereg_mr")()
	}
	if !r.Quiet() {
		return &verbs.Error{Op: "dereg_mr", Errno: syscall.EBUSY, Detail: "a peer is in the middle of a copy to the memory region"}
	}
	if r.domain != nil {
		r.domain.Users--
	}
	r.t.Remove(r.key)
	return nil
}

// Quiet implements verbs.QuietMR.
func (r *Region) Quiet() bool {
	return r.key == 0 || r.domain == nil || r.domain.Quiet == nil || r.domain.Quiet(r.key)
}

// Kept implements verbs.QuietMR.
func (r *Region) Kept() bool { return r.kept }

// Domain is the part of a protection domain that its regions need.
type Domain struct {
	Users int                              // MRs, SRQs and QPs of the domain that exist
	Enter func(call string) (leave func()) // begins a call of the device's owner; only with -tags invariants

	// Quiet has peers write no more to the region of that key, and reports whether they do not;
	// nil: none ever does.
	Quiet func(key uint32) bool
}

// NewTable makes a table whose pieces lie on the heap.
func NewTable() *Table {
	return &Table{dir: new(Dir), more: heapPiece, inv: newChecks()}
}

func heapPiece(int) (*Piece, error) { return new(Piece), nil }

// Rehome has the pieces allocated by more, before any region is registered. It allocates the first
// one at once, so that a device without memory for that fails when it is opened. apart tells which
// memory peers must not copy from or to.
func (t *Table) Rehome(more func(k int) (*Piece, error), apart func(buf []byte) bool) error {
	if len(t.own) != 0 {
		panic("mem: Table.Rehome after use")
	}
	t.more, t.apart = more, apart
	first, err := more(0)
	t.dir[0] = first
	return err
}

// ToHeap copies the table to the heap, since the memory of its pieces is about to be freed.
func (t *Table) ToHeap() {
	dir := new(Dir)
	for k, p := range t.dir {
		if p != nil {
			dir[k] = new(Piece)
			*dir[k] = *p
		}
	}
	t.dir, t.more = dir, heapPiece
}

// take returns the index of a slot for a new region.
func (t *Table) take() (uint32, error) {
	if t.nfree <= rest {
		return t.fresh()
	}
	i := t.head
	t.head = t.own[i].link
	t.nfree--
	return i, nil
}

// fresh returns the index of a slot that was never used.
func (t *Table) fresh() (uint32, error) {
	if t.live == MaxRegions { // the slots that are free now must stay so, see rest
		return 0, errFull
	}
	i := uint32(len(t.own))
	if k := i / PieceSlots; t.dir[k] == nil {
		p, err := t.more(int(k))
		if err != nil {
			return 0, err
		}
		t.dir[k] = p
	}
	t.own = append(t.own, ownSlot{next: 1<<IndexBits | i})
	return i, nil
}

// put appends a slot to the queue of free ones.
func (t *Table) put(i uint32) {
	if t.nfree == 0 {
		t.head = i
	} else {
		t.own[t.tail].link = i
	}
	t.tail = i
	t.nfree++
}

// Apart reports whether buf, which is not empty, is memory that peers must not copy from or to:
// they would wait in the kernel. It goes as packets.
func (t *Table) Apart(buf []byte) bool { return t.apart != nil && t.apart(buf) }

// Register makes a region of buf, which is not empty. Its key is both rkey and lkey, and never 0.
func (t *Table) Register(buf []byte, access verbs.AccessFlags, pd *Domain) (*Region, error) {
	s := t.shareOf(buf)
	if s == nil {
		home := uint64(0)
		if access&verbs.AccessRemoteRead != 0 && t.Apart(buf) {
			home = isApart
		}
		return t.register(buf, access, pd, home)
	}
	r, err := t.register(buf, access, pd, uint64(s.r.key))
	if err == nil {
		r.share = s
		s.users++
	}
	return r, err
}

// register is Register; home is Slot.home.
func (t *Table) register(buf []byte, access verbs.AccessFlags, pd *Domain, home uint64) (*Region, error) {
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
		r = &Region{t: t}
	} else {
		t.spare, r.next = r.next, nil
		t.nspare--
	}
	o := &t.own[i]
	o.r = r
	r.key, r.buf, r.access, r.domain, r.addr = o.next, buf, access, pd, AddrOf(buf)
	// The slot of one that peers have no right to stays empty, and nothing is pinned: the Region
	// holds the memory, and nobody else does.
	if r.open = access&^verbs.AccessLocalWrite != 0 || home&isShared != 0; r.open {
		r.pin.Pin(&buf[0])
		t.publish(i, r, home)
	}
	if r.readable() {
		t.readable++
	}
	t.inv.registered(r)
	return r, nil
}

// publish fills slot i. The key comes last, so that a peer that sees it sees the rest too. The
// stores are atomic, hence ordered on every architecture.
func (t *Table) publish(i uint32, r *Region, home uint64) {
	s, o := t.dir.At(i), &t.own[i]
	if home != 0 || o.home {
		atomic.StoreUint64(&s.home, home)
		o.home = home != 0
	}
	atomic.StoreUint64(&s.addr, r.addr)
	atomic.StoreUint64(&s.length, uint64(len(r.buf)))
	atomic.StoreUint64(&s.key, uint64(r.access)<<32|uint64(r.key))
}

// Remove deregisters a region. It ignores an unknown key.
func (t *Table) Remove(rkey uint32) {
	r := t.Find(rkey)
	if r == nil {
		return
	}
	i := rkey & IndexMask
	t.inv.removed(rkey)
	if r.open {
		atomic.StoreUint64(&t.dir.At(i).key, 0)
		r.pin.Unpin()
	}
	if r.readable() {
		t.readable--
	}
	o := &t.own[i]
	o.r, o.next = nil, r.key+1<<IndexBits
	if o.next>>IndexBits == 0 { // with generation 0 the key of slot 0 would be 0
		o.next += 1 << IndexBits
	}
	r.key, r.buf, r.domain, r.kept = 0, nil, nil, false
	if r.share != nil {
		r.share.users--
		r.share = nil
	}
	if t.nspare < maxSpare {
		r.next, t.spare = t.spare, r
		t.nspare++
	}
	t.live--
	t.put(i)
}

func (r *Region) readable() bool { return r.access&verbs.AccessRemoteRead != 0 }

// Readable is how many regions peers may read. Memory that is shared counts while a region for that
// lies in it.
func (t *Table) Readable() int { return t.readable }

// Find returns the region of a key, or nil.
func (t *Table) Find(key uint32) *Region {
	i := int(key & IndexMask)
	if i >= len(t.own) {
		return nil
	}
	if r := t.own[i].r; r != nil && r.key == key {
		return r
	}
	return nil
}

// Resolve returns the n bytes at addr if they are in region rkey of protection domain pd, which
// must have the rights in need. A transfer of no bytes is not checked, as in the IB specification.
func (t *Table) Resolve(pd *Domain, rkey uint32, addr, n uint64, need verbs.AccessFlags) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	r := t.Find(rkey)
	if r == nil || r.access&need != need || r.domain != pd || addr < r.addr {
		return nil, false
	}
	off, size := addr-r.addr, uint64(len(r.buf))
	if off > size || n > size-off {
		return nil, false
	}
	return r.buf[off : off+n : off+n], true
}

// Local reports whether all of data is in region lkey of protection domain pd, which must have the
// rights in need.
func (t *Table) Local(pd *Domain, lkey uint32, data []byte, need verbs.AccessFlags) bool {
	if len(data) == 0 {
		return true
	}
	_, ok := t.Resolve(pd, lkey, AddrOf(data), uint64(len(data)), need)
	return ok
}

// Reaches implements wire.RemoteMemory for peers in the same process.
func (t *Table) Reaches(uint32) bool { return true }

// Read implements wire.RemoteMemory for peers in the same process.
func (t *Table) Read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus {
	n := uint64(len(dst))
	r := t.Find(rkey)
	if r == nil || !Allows(t.dir.At(rkey), rkey, addr, n, verbs.AccessRemoteRead) {
		return verbs.WCRemAccessErr
	}
	src, ok := t.Resolve(r.domain, rkey, addr, n, verbs.AccessRemoteRead)
	if !ok {
		return verbs.WCRemAccessErr
	}
	if !fault.Copy(dst, src) {
		return Gone(dst)
	}
	return verbs.WCSuccess
}

// Gone is the status of a copy to dst that could not be made, since memory at one of its ends is
// unmapped or protected, or behind the end of its file.
func Gone(dst []byte) verbs.WCStatus {
	if !fault.Writable(dst) {
		return verbs.WCLocAccessErr
	}
	return verbs.WCRemOpErr
}
