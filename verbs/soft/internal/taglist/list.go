package taglist

import (
	"math/bits"
	"syscall"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/verbs"
)

// MaxSGE is how many scatter/gather entries a tagged receive has, at most.
const MaxSGE = 1

// Config of Init.
type Config struct {
	Tags   uint32  // most entries
	Ops    uint32  // most operations that were posted and whose slots in the command queue are in use
	Seed   uint64  // keys the hash tables; peers must not know it
	Quirks *Quirks // for tests; nil in production
}

// List is a tag list. The zero value needs Init.
type List struct {
	// An entry is live if its sequence number is below limit, else dormant.
	entries *matching.Posted[uint32] // those that can match, with their slots
	limit   matching.Seq
	h       uint16 // messages found unexpected; see H
	handled uint16 // of these, how many software has reported as handled (S of TMO 5.1)
	quiet   uint16 // with fewer that are not handled, completions of unexpected messages have no flags
	quirks  *quirks

	// The command queue. Positions count list operations from 0, modulo 2^32.
	maxOps   uint32 // most operations from tail to posted
	posted   uint32 // the next operation
	tail     uint32 // the first whose slot is in use: a polled completion frees those up to it
	signaled uint32 // one above the newest signalled operation

	// The slots, of which a handle has the index in its lower slotBits and the generation above.
	slots    []slot
	slotBits uint
	free     []uint32 // ring of free slots; the first is at head
	head     uint32
	check    checks
	nfree    uint32
}

// slot is a slot of the tag list.
type slot struct {
	// As the driver has it.
	gen       uint32 // of its handle
	expectCQE uint32 // completions to be polled until it is free (expect_cqe of TMO 3.4); 0: it is

	// As the device has it: the entry that was added last.
	listed bool            // in the list: not matched, not removed
	never  bool            // no tag matches it, since its own has bits outside its mask (TMO 3.1)
	stored matching.Handle // in List.entries, unless never
	entry  Entry
}

// Entry is a tagged receive.
type Entry struct {
	Handle uint32
	WRID   uint64 // of the receive
	Buf    Buffer
}

// Buffer is memory by address and key. Length 0: there is none.
type Buffer struct {
	Addr, Length uint64
	LKey         uint32
}

// NoHandle is the handle of completions that concern no slot.
const NoHandle = ^uint32(0)

// Init makes an empty list. Its size is that of verbs.TMCap.
func (l *List) Init(cfg Config) {
	n := cfg.Tags + 1 // one slot is always free (TMO 3.4)
	*l = List{maxOps: cfg.Ops, slots: make([]slot, n), free: make([]uint32, n), nfree: n, slotBits: uint(bits.Len32(n - 1)), quiet: syncReqFrom + 1,
		entries: matching.NewPosted[uint32](cfg.Seed)}
	for i := range l.free {
		l.free[i] = uint32(i)
		l.slots[i].gen = 1
	}
	l.use(cfg.Quirks)
	l.check.start(l)
	l.activate()
}

// Len returns how many entries can match, live or dormant.
func (l *List) Len() int { return l.entries.Len() }

// H returns the messages found unexpected as devices count them (H of TMO 5.1).
func (l *List) H() uint16 { return l.h }

// activate makes all entries live if software has handled all unexpected messages (rule 4 of TMO
// 5.2).
func (l *List) activate() {
	if l.handled == l.h {
		l.limit = l.entries.NextSeq()
		l.check.activated()
	}
}

// Match takes the oldest live entry that matches a message's tag out of the list (rule 5 of TMO
// 5.2), or returns nil. The entry is valid until the next call of the List. Its receive ends by
// one completion, which the owner makes and for which it calls Polled in the end.
func (l *List) Match(tag uint64) *Entry {
	i, ok := l.entries.MatchBefore(tag, l.limit)
	if !ok {
		l.check.matched(tag, false, 0)
		return nil
	}
	s := &l.slots[i]
	l.check.matched(tag, true, s.entry.Handle)
	s.listed = false
	return &s.entry
}

// syncReqFrom is how many unexpected messages software may leave unreported: completions of further
// ones have SYNC_REQ (TMO 4.6).
const syncReqFrom = 0x3fff

// Unexpected counts an unexpected message and returns the flags of its completion.
func (l *List) Unexpected() verbs.WCFlags {
	l.h++
	if l.h-l.handled < l.quiet { // this form is inlined
		return 0
	}
	return l.unexpectedFlags()
}

// unexpectedFlags is Unexpected where a quirk or a flag is to be looked for.
//
//go:noinline
func (l *List) unexpectedFlags() verbs.WCFlags {
	sync := l.h-l.handled > syncReqFrom
	if q := l.quirks; q != nil {
		if q.LiveGoDormant {
			l.limit = 0
			l.check.asleep()
		}
		q.driver.in++
		if q.SyncReq {
			sync = q.driver.unexpected()
		}
	}
	if sync {
		return verbs.WCFlagTMSyncReq
	}
	return 0
}

// Forget takes back the count of a message that will not be reported. Software could never handle
// it, and entries would stay dormant for ever.
func (l *List) Forget() {
	l.h--
	if l.quirks != nil {
		l.quirks.driver.in--
	}
}

// slotOf returns the slot of a handle, or nil if the handle is not in use.
func (l *List) slotOf(hnd uint32) *slot {
	i := l.index(hnd)
	if int(i) >= len(l.slots) {
		return nil
	}
	s := &l.slots[i]
	if s.gen<<l.slotBits != hnd&^(1<<l.slotBits-1) || s.expectCQE == 0 {
		return nil
	}
	return s
}

// index returns the slot that a handle names, which may be beyond the last.
func (l *List) index(hnd uint32) uint32 { return hnd & (1<<l.slotBits - 1) }

// next returns the position behind i in the ring of free slots.
func (l *List) next(i uint32) uint32 {
	if i++; i == uint32(len(l.free)) {
		return 0
	}
	return i
}

// release subtracts n from expectCQE of a handle's slot, and frees the slot at 0. It returns false
// if the handle is not in use.
func (l *List) release(hnd, n uint32) bool {
	s := l.slotOf(hnd)
	if s == nil {
		return false
	}
	if s.expectCQE -= min(n, s.expectCQE); s.expectCQE == 0 {
		l.check.freed(l, hnd)
		s.gen++
		i := l.head + l.nfree
		if i >= uint32(len(l.free)) {
			i -= uint32(len(l.free))
		}
		l.free[i] = l.index(hnd)
		l.nfree++
	}
	return true
}

// Polled frees what the program's poll of a completion allows (TMO 3.4): the completion of an
// operation, or the last of a receive. upto is Due.Upto, of an operation.
func (l *List) Polled(wc *verbs.WC, hnd, upto uint32) {
	l.check.polled(wc, hnd)
	switch wc.Opcode {
	case verbs.WCTMAdd:
		l.tail = upto
		l.release(hnd, 1)
	case verbs.WCTMDel:
		l.tail = upto
		switch {
		case hnd == NoHandle:
		case wc.Status == verbs.WCSuccess:
			l.release(hnd, 2)
		default:
			l.release(hnd, 1) // the receive was matched, and its completion releases the rest
		}
	case verbs.WCTMSync:
		l.tail = upto
	default:
		if !l.release(hnd, 1) && l.strict() {
			l.usedAgain(wc, hnd)
		}
	}
	l.check.now(l)
}

// fail returns the error of an operation that cannot be posted.
func fail(errno syscall.Errno, detail string) error {
	return &verbs.Error{Op: "post_srq_ops", Errno: errno, Detail: detail}
}

// CheckArrival begins a message's arrival, which must take effect as a whole (V10), and returns the
// function that ends it. As all of Check, it is for builds with -tags invariants, and nothing in
// others.
func (l *List) CheckArrival() (done func()) { return l.check.arrival(l) }

// CheckCount records that n more messages are unexpected: the owner knows it by other means than
// Unexpected and Forget.
func (l *List) CheckCount(n int) { l.check.count(n) }

// CheckEnd records that a receive has its last completion (V12).
func (l *List) CheckEnd(wrid uint64, hnd uint32) { l.check.end(wrid, hnd) }
