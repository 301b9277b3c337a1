package tmsrq

import (
	"errors"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// ops is the queue of list operations. The device frees its slots only up to the newest signalled
// operation whose completion was polled (TMO 3.4): of every half queue at least one is signalled,
// so that a full queue always empties.
type ops struct {
	srq                          verbs.SRQ
	wr                           verbs.OpsWR
	sge                          [1]verbs.SGE
	depth                        uint32
	every                        uint32
	posted, signalled, reclaimed uint32
	syncing                      uint64 // the WRID of the Sync under way; 0: none

	// DELs that found no room, oldest first: here transport.TagList's promise is kept that none
	// is refused. An entry has at most one.
	waiting      []waitingDel
	head, queued int
}

type waitingDel struct{ slot, count uint32 }

func (o *ops) open(srq verbs.SRQ, depth uint32, entries int) {
	o.srq, o.depth, o.every = srq, depth, max(depth/2, 1)
	o.waiting = make([]waitingDel, entries)
}

// room is how many operations can be posted now.
func (o *ops) room() uint32 { return o.depth - (o.posted - o.reclaimed) }

// pending says that a completion is to come that makes room.
func (o *ops) pending() bool { return int32(o.signalled-o.reclaimed) > 0 }

// post posts the operation in o.wr with what is common to all: the count, on every one of them (TMO
// 5.4), and the signal if it is asked for or due.
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

func (o *ops) enqueue(slot, count uint32) {
	o.waiting[(o.head+o.queued)%len(o.waiting)] = waitingDel{slot, count}
	o.queued++
}

func (o *ops) front() (slot, count uint32) { return o.waiting[o.head].slot, o.waiting[o.head].count }

func (o *ops) pop() {
	o.head = (o.head + 1) % len(o.waiting)
	o.queued--
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOMEM) }
