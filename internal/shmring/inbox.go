package shmring

import (
	"errors"
	"math/bits"
	"sync/atomic"
)

const (
	// Slots is how many rings an inbox has bits for.
	Slots = 64 * 64
	// InboxBytes is the memory that an inbox takes.
	InboxBytes = inboxBytes

	inboxBytes = 1024
)

// inbox is the memory of an Inbox.
type inbox struct {
	parked  uint32
	_       [124]byte
	summary uint64 // bit w: ready[w] may have bits
	_       [120]byte
	ready   [Slots / 64]uint64
	_       [256]byte
}

const (
	awake   = 0
	parked  = 1
	woken   = 2 // one of the peers has taken on to wake the owner
	slotMax = Slots - 1
)

// Inbox is a process's ready bitmap: peers raise slots, the owner takes them. It also says whether
// the owner sleeps.
type Inbox struct{ m *inbox }

// NewInbox makes an inbox over mem, which must be zero at first and stay mapped. The owner and all
// peers make one each.
func NewInbox(mem []byte) (Inbox, error) {
	if len(mem) < InboxBytes || !aligned(mem) {
		return Inbox{}, errors.New("shmring: memory of an inbox is too small or not aligned")
	}
	return Inbox{inboxOf(mem)}, nil
}

// Raise marks a slot ready. It returns true when the caller has to wake the owner, who sleeps; one
// caller is told so.
//
// A slot that is ready already needs no store: its owner looks at what it stands for after it has
// taken the bit, and the caller has published before it looked at the bit, with a full barrier in
// between.
func (b Inbox) Raise(slot uint32) (wake bool) {
	w, bit := slot&slotMax/64, uint64(1)<<(slot%64)
	if atomic.LoadUint64(&b.m.ready[w])&bit == 0 {
		atomic.OrUint64(&b.m.ready[w], bit)
	}
	if atomic.LoadUint64(&b.m.summary)&(1<<w) == 0 {
		atomic.OrUint64(&b.m.summary, 1<<w)
	}
	return atomic.LoadUint32(&b.m.parked) == parked && atomic.CompareAndSwapUint32(&b.m.parked, parked, woken)
}

// Pending reports that slots may be ready. It is what an idle poll costs, however many rings there
// are.
func (b Inbox) Pending() bool { return atomic.LoadUint64(&b.m.summary) != 0 }

// Take calls f for each slot that is ready, having taken its bit. Slots raised meanwhile may be
// left for the next Take.
func (b Inbox) Take(f func(slot uint32)) {
	// The summary is cleared before the words are, each with a full barrier, as Raise sets them the
	// other way round.
	for s := atomic.SwapUint64(&b.m.summary, 0); s != 0; s &= s - 1 {
		w := uint32(bits.TrailingZeros64(s))
		for r := atomic.SwapUint64(&b.m.ready[w], 0); r != 0; r &= r - 1 {
			f(w*64 + uint32(bits.TrailingZeros64(r)))
		}
	}
}

// Park says that the owner is about to sleep. It must look at Pending and at its hot rings once
// more afterwards; the store is the full barrier that this needs. It holds for one wake-up, also
// for a late one that was meant for an earlier sleep: park again before sleeping again.
func (b Inbox) Park() { atomic.StoreUint32(&b.m.parked, parked) }

// Unpark says that the owner is awake. A peer may have woken it, or be just about to.
func (b Inbox) Unpark() { atomic.StoreUint32(&b.m.parked, awake) }

// Keep marks a slot ready for the owner itself, which is awake.
func (b Inbox) Keep(slot uint32) {
	w := slot & slotMax / 64
	atomic.OrUint64(&b.m.ready[w], 1<<(slot%64))
	atomic.OrUint64(&b.m.summary, 1<<w)
}
