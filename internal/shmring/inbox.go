package shmring

import (
	"errors"
	"math/bits"
	"sync/atomic"
)

const (
	// Slots is the number of rings that an inbox has bits for.
	Slots = 64 * 64
	// InboxBytes is the memory that an inbox takes.
	InboxBytes = inboxBytes

	inboxBytes = 1024
)

// inbox is the shared memory of an Inbox.
type inbox struct {
	state   uint32 // awake, parked, woken or away
	_       [124]byte
	summary uint64 // bit w: ready[w] may have bits set
	_       [120]byte
	ready   [Slots / 64]uint64
	_       [256]byte
}

const (
	awake   = 0
	parked  = 1
	woken   = 2 // a peer is waking the owner
	away    = 3 // the owner polls again some time; what is urgent wakes it before
	slotMax = Slots - 1
)

// Inbox is a process's ready bitmap: peers set bits, the owner takes them. It also tells
// whether the owner polls, and for what it is to be woken.
type Inbox struct{ m *inbox }

// NewInbox makes an inbox over mem, which must be zero at first and stay mapped. The owner and each
// peer make one.
func NewInbox(mem []byte) (Inbox, error) {
	if len(mem) < InboxBytes || !aligned(mem) {
		return Inbox{}, errors.New("shmring: memory of an inbox is too small or not aligned")
	}
	return Inbox{inboxOf(mem)}, nil
}

// Raise marks a slot ready. It returns true, to one caller, if that must wake the owner, which
// sleeps, or is away and what has come is urgent.
//
// A slot that is ready already needs no store: its owner reads the ring after it has taken the bit,
// and the caller has published before it read the bit, with a full barrier in between.
func (b Inbox) Raise(slot uint32, urgent bool) (wake bool) {
	w, bit := slot&slotMax/64, uint64(1)<<(slot%64)
	if atomic.LoadUint64(&b.m.ready[w])&bit == 0 {
		atomic.OrUint64(&b.m.ready[w], bit)
	}
	if atomic.LoadUint64(&b.m.summary)&(1<<w) == 0 {
		atomic.OrUint64(&b.m.summary, 1<<w)
	}
	// An owner that changes its mark meanwhile looks at the bits after that.
	state := atomic.LoadUint32(&b.m.state)
	return (state == parked || state == away && urgent) && atomic.CompareAndSwapUint32(&b.m.state, state, woken)
}

// Pending reports whether slots may be ready. This is the cost of an idle poll, however many rings
// there are.
func (b Inbox) Pending() bool { return atomic.LoadUint64(&b.m.summary) != 0 }

// Take calls f for each ready slot, after it has cleared the bit. Slots raised meanwhile may be
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

// Park marks the owner as about to sleep. Afterwards it must check Pending and its hot rings once
// more; the store is the full barrier that this needs. The mark is for one wake-up, possibly a late
// one that was meant for an earlier sleep: park again before sleeping again.
func (b Inbox) Park() { atomic.StoreUint32(&b.m.state, parked) }

// Leave is Park for an owner that is woken by what is urgent only.
func (b Inbox) Leave() { atomic.StoreUint32(&b.m.state, away) }

// Unpark marks the owner as awake. A peer may have woken it, or be about to.
func (b Inbox) Unpark() { atomic.StoreUint32(&b.m.state, awake) }

// Keep marks a slot ready on behalf of the owner, which is awake.
func (b Inbox) Keep(slot uint32) {
	w := slot & slotMax / 64
	atomic.OrUint64(&b.m.ready[w], 1<<(slot%64))
	atomic.OrUint64(&b.m.summary, 1<<w)
}
