package tmsrq

import (
	"errors"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// ops is the device's queue of list operations, and the DELs that wait for room in it. The device
// frees slots of its queue only up to the newest signalled operation whose completion was polled
// (TMO 3.4): of every half queue at least one is signalled, so that a full queue always empties.
type ops struct {
	srq   verbs.SRQ
	wr    verbs.OpsWR  // reused by every operation; post fills in what all have in common
	sge   [1]verbs.SGE // of an ADD in wr
	depth uint32       // slots of the device's queue
	every uint32       // of so many successive operations at least one is signalled
	// Numbers of operations. Those from reclaimed to posted have slots; signalled is one more than
	// the number of the newest signalled one. Invariant: reclaimed <= posted <= reclaimed+depth and
	// signalled <= posted, modulo 2^32. An operation that fails completes although unsignalled, so
	// that reclaimed may be beyond signalled.
	posted, signalled, reclaimed uint32
	syncing                      uint64 // WRID of the outstanding SYNC that TagList.Sync posted; 0: none

	// DELs that found no room: a ring, oldest first, of as many places as the list has entries, as
	// an entry has at most one. Del and ForceDel are never refused for want of room, because of it.
	waiting []waitingDel
	head    int // place of the oldest
	queued  int // DELs in waiting
}

// waitingDel is a DEL that is still to be posted.
type waitingDel struct {
	slot  uint32 // of its entry
	count uint32 // the unexpected_cnt to be posted with it (TMO 5.1)
}

func (o *ops) open(srq verbs.SRQ, depth uint32, entries int) {
	o.srq, o.depth, o.every = srq, depth, max(depth/2, 1)
	o.waiting = make([]waitingDel, entries)
}

// room returns how many operations can be posted now.
func (o *ops) room() uint32 { return o.depth - (o.posted - o.reclaimed) }

// pending reports whether a signalled operation is outstanding, whose completion makes room.
func (o *ops) pending() bool { return int32(o.signalled-o.reclaimed) > 0 }

// post posts the operation in o.wr. count, the number of handled messages, goes with every
// operation (TMO 5.4). The operation is signalled if signal asks for it, or if too many before it
// were not; it returns which. kind and slot are for the WRID.
func (o *ops) post(kind uint64, slot uint32, signal bool, count uint32) (signalled bool, err error) {
	wr := &o.wr
	wr.Flags, wr.UnexpectedCnt = verbs.OpsTMSync, count
	if signal || o.posted-o.signalled >= o.every-1 {
		wr.Flags |= verbs.OpsSignaled
		signalled = true
	}
	wr.WRID = kind<<kindShift | uint64(slot)<<32 | uint64(o.posted)
	_, err = o.srq.PostSRQOps(wr)
	o.sge[0].Data = nil
	if err != nil {
		return false, err
	}
	o.posted++
	if signalled {
		o.signalled = o.posted
	}
	return signalled, nil
}

// enqueue adds a DEL that found no room; the caller has set entry.queued.
func (o *ops) enqueue(slot, count uint32) {
	o.waiting[(o.head+o.queued)%len(o.waiting)] = waitingDel{slot, count}
	o.queued++
}

// front returns the oldest DEL that waits. There is one.
func (o *ops) front() (slot, count uint32) { return o.waiting[o.head].slot, o.waiting[o.head].count }

// pop removes the oldest DEL that waits.
func (o *ops) pop() {
	o.head = (o.head + 1) % len(o.waiting)
	o.queued--
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOMEM) }
