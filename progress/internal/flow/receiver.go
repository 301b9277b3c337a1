package flow

import (
	"slices"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
)

// Memory is what the peers of a rank share: its memory for unexpected messages.
type Memory struct {
	*credit.Pool
	posted func(matching.Handle) bool
	slots  int         // constant: Slots; less in tests
	heldUp []*Receiver // those whose peers are held up
	turn   int         // of those, whose window was widened last
}

// NewMemory divides a pool. posted reports whether the receive with this handle waits.
func NewMemory(pool *credit.Pool, posted func(matching.Handle) bool) *Memory {
	return &Memory{Pool: pool, posted: posted, slots: Slots}
}

// Receiver returns that of a peer, which may send nothing before Open. It is not copied once it is
// in use.
func (m *Memory) Receiver(rank int) Receiver {
	return Receiver{Account: m.Account(), Rank: rank, memory: m}
}

// HeldUp is the peers that are held up for credit here. The caller does not change it.
func (m *Memory) HeldUp() []*Receiver { return m.heldUp }

// Grow widens the window of one of the peers that are held up, round robin, as memory has become
// free. Its credit is to be renewed; nil: there is none.
func (m *Memory) Grow() *Receiver {
	if len(m.heldUp) == 0 {
		return nil
	}
	m.turn++
	if r := m.heldUp[m.turn%len(m.heldUp)]; r.Account.Grow() {
		return r
	}
	return nil
}

// Receiver decides what one peer may send.
type Receiver struct {
	credit.Account
	Rank   int // constant: the peer
	memory *Memory

	episode uint32     // of the peer's last HELD
	wants   []sentWant // the index is the slot that the WANT names; at most Slots
	all     bool       // more receives wait than there are slots: the peer may send its whole queue
	allDue  bool       // and that is to be told
	credit  bool       // there is a grant (Account.Granted) that is to be told
	order   uint64     // of the newest in wants
}

// sentWant is a posted receive, or a probe that does not block, for which a WANT was told, or is to
// be told.
type sentWant struct {
	handle    matching.Handle // stale once the receive is matched or has ended
	tag, mask uint64
	order     uint64 // WANTs are told in the order of their receives
	due       bool   // it is to be told
	probe     bool   // it is a probe's, which is not posted; no longer once a message has come
}

// Episode is that of the peer's last HELD, see Sender.Episode.
func (r *Receiver) Episode() uint32 { return r.episode }

// HeldUp reports whether the peer is held up.
func (r *Receiver) HeldUp() bool { return odd(r.episode) }

// Renew grants the peer what its window has room for, and reports whether that is more than before:
// then it is due.
func (r *Receiver) Renew() bool {
	more := r.Account.Renew()
	r.credit = r.credit || more
	return more
}

// Held takes a HELD of the peer: its sends to this rank are held up, or are no more. Where they
// are, the receives that wait are to be named by Post. granted reports whether it has got credit.
func (r *Receiver) Held(h Held) (granted bool) {
	was := r.HeldUp()
	r.episode = h.Episode
	r.wants, r.all, r.allDue = r.wants[:0], false, false
	if !r.HeldUp() {
		if was {
			r.unlist()
		}
		return false
	}
	if !was {
		r.memory.heldUp = append(r.memory.heldUp, r)
	}
	r.EndExcess(h.Charged)
	granted = r.Granted() <= h.Allowed && r.Grow() && r.Account.Renew()
	r.credit = r.Granted() > h.Allowed
	return granted
}

func (r *Receiver) unlist() {
	m := r.memory
	m.heldUp = slices.DeleteFunc(m.heldUp, func(o *Receiver) bool { return o == r })
}

// All reports whether the peer may send its whole queue: further receives need no WANT.
func (r *Receiver) All() bool { return r.all }

// Post names a receive that waits and that the peer could satisfy. It reports whether something is
// due by it.
func (r *Receiver) Post(h matching.Handle, tag, mask uint64) bool {
	return r.HeldUp() && r.want(sentWant{handle: h, tag: tag, mask: mask})
}

// Probe names a probe that does not block and has found nothing, once: until a message that it
// matches has come of that peer, the next one with the same tag and mask asks no more. A receive
// may take its slot; then the next probe asks again. It reports whether something is due by it.
func (r *Receiver) Probe(tag, mask uint64) bool {
	asked := slices.ContainsFunc(r.wants, func(w sentWant) bool { return w.probe && w.tag == tag && w.mask == mask })
	return r.HeldUp() && !asked && r.want(sentWant{probe: true, tag: tag, mask: mask})
}

// Arrived follows a message of the peer: the probes that have asked for it may ask again. It
// reports whether others have asked that wait still.
func (r *Receiver) Arrived(tag uint64) (probed bool) {
	for i := range r.wants {
		w := &r.wants[i]
		w.probe = w.probe && !matches(w.tag, w.mask, tag)
		probed = probed || w.probe
	}
	return probed
}

// Probed reports whether a probe has asked for messages that have not come.
func (r *Receiver) Probed() bool {
	return slices.ContainsFunc(r.wants, func(w sentWant) bool { return w.probe })
}

// want finds a slot for a receive or a probe: a new one, or that of a receive which does not wait
// any more, or of a probe. Where all slots have receives that wait, the peer may send its whole
// queue.
func (r *Receiver) want(n sentWant) bool {
	if r.all {
		return false
	}
	r.order++
	n.order, n.due = r.order, true
	if len(r.wants) < r.memory.slots {
		r.wants = append(r.wants, n)
		return true
	}
	if i := slices.IndexFunc(r.wants, func(w sentWant) bool { return !r.memory.posted(w.handle) }); i >= 0 {
		r.wants[i] = n
		return true
	}
	r.all, r.allDue = true, true
	return true
}

// Due is the WANT that the peer, which is held up, is to be told next, if there is one: WANTs in
// the order of their receives, then credit. While a receive is cancelling from a device (settled is
// false) only credit is told: that receive may still take a message which was sent for the WANT of
// a later one.
func (r *Receiver) Due(settled bool) (w Want, due bool) {
	w = Want{Episode: r.episode, Allowed: r.Granted(), Slot: None}
	if settled && r.allDue {
		w.Slot = All
		return w, true
	}
	if i := r.next(); settled && !r.all && i >= 0 {
		w.Slot, w.Tag, w.Mask = uint8(i), r.wants[i].tag, r.wants[i].mask
		return w, true
	}
	return w, r.credit
}

// next is the slot of the earliest receive or probe that waits and whose WANT is due, or -1.
func (r *Receiver) next() int {
	next := -1
	for i := range r.wants {
		w := &r.wants[i]
		if w.due && (next < 0 || w.order < r.wants[next].order) && (w.probe || r.memory.posted(w.handle)) {
			next = i
		}
	}
	return next
}

// Told follows that the WANT which was due is under way: it carries the newest grant.
func (r *Receiver) Told(w Want) {
	r.credit = false
	switch w.Slot {
	case None:
		return
	case All:
		r.allDue = false
	default:
		r.wants[w.Slot].due = false
	}
	r.AllowExcess()
}

// Grant is the credit that the peer, which is not held up, is to be told, if there is some: it is
// told then.
func (r *Receiver) Grant() (allowed uint64, due bool) {
	due, r.credit = r.credit, false
	return r.Granted(), due
}

// Close follows the loss of the peer.
func (r *Receiver) Close() {
	r.Account.Close()
	if r.HeldUp() {
		r.unlist()
	}
	r.episode, r.wants, r.credit, r.all, r.allDue = 0, nil, false, false, false
}
