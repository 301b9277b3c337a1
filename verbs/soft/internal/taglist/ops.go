package taglist

import (
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// Op is a list operation that was posted. It takes effect when it is executed, after those posted
// before it.
type Op struct {
	Opcode verbs.OpsOpcode
	Lost   bool // a fault for tests: its unexpected_cnt has no effect
	flags  verbs.OpsFlags
	stale  bool // DEL of a handle that is not in use any more
	count  uint32
	index  uint32 // position in the command queue
	wrid   uint64
	tag    uint64
	mask   uint64
	entry  Entry // of ADD; of DEL only the handle, or NoHandle
}

// Handle is that of the entry that the operation adds or removes, or NoHandle.
func (o *Op) Handle() uint32 { return o.entry.Handle }

// Buf is the buffer of the receive that it adds.
func (o *Op) Buf() Buffer { return o.entry.Buf }

// Syncs reports whether it has an unexpected_cnt.
func (o *Op) Syncs() bool { return o.flags&verbs.OpsTMSync != 0 }

func (o *Op) isSignaled() bool { return o.flags&verbs.OpsSignaled != 0 }

// Due is what becomes due when a completion is polled: Polled takes both.
type Due struct {
	Handle uint32 // of the entry concerned, or NoHandle
	Upto   uint32 // earlier operations' slots of the command queue become free
}

// Post checks one operation, takes its slots and describes it in o. With an error, EINVAL or ENOMEM
// in a *verbs.Error, nothing has changed.
func (l *List) Post(wr *verbs.OpsWR, o *Op) error {
	if wr.Flags&^(verbs.OpsSignaled|verbs.OpsTMSync) != 0 {
		return fail(syscall.EINVAL, "unknown flags")
	}
	signaled := wr.Flags&verbs.OpsSignaled != 0
	used := l.posted - l.tail
	switch {
	case used >= l.maxOps:
		return fail(syscall.ENOMEM, "MaxOps operations are outstanding: slots come back when a signalled one's completion is polled")
	case l.strict() && !signaled && used+1 == l.maxOps && int32(l.signaled-l.tail) <= 0:
		return l.breach("V14", "with this unsignalled operation the command queue would be stuck for ever")
	}
	*o = Op{Opcode: wr.Opcode, flags: wr.Flags, count: wr.UnexpectedCnt, index: l.posted, wrid: wr.WRID, entry: Entry{Handle: NoHandle}}
	var err error
	switch wr.Opcode {
	case verbs.WRTagAdd:
		err = l.postAdd(wr, o)
	case verbs.WRTagDel:
		err = l.postDel(wr, o)
	case verbs.WRTagSync:
	default:
		err = fail(syscall.EINVAL, "unknown opcode")
	}
	if err != nil {
		return err
	}
	l.posted++
	if signaled {
		l.signaled = l.posted
	}
	l.check.postedOp(l)
	return nil
}

// postAdd takes the first free slot, unless it is the last free one (TMO 3.4).
func (l *List) postAdd(wr *verbs.OpsWR, o *Op) error {
	a := &wr.Add
	switch {
	case len(a.SGList) > MaxSGE:
		return fail(syscall.EINVAL, "more scatter/gather entries than the device's TM.MaxSGE")
	case l.strict() && a.Tag&^a.Mask != 0:
		return l.breach("V19", "the tag has bits outside the mask, nothing could match it")
	case l.nfree <= 1:
		return fail(syscall.ENOMEM, "the tag list is full")
	}
	i := l.free[l.head]
	l.head = l.next(l.head)
	l.nfree--
	s := &l.slots[i]
	s.expectCQE = 1
	if o.isSignaled() {
		s.expectCQE = 2
	}
	o.tag, o.mask = a.Tag, a.Mask
	o.entry.Handle, o.entry.WRID = s.gen<<l.slotBits|i, a.RecvWRID
	if len(a.SGList) > 0 {
		b := &a.SGList[0]
		o.entry.Buf = Buffer{mem.AddrOf(b.Data), uint64(len(b.Data)), b.LKey}
	}
	l.check.added(l, o)
	wr.Handle = o.entry.Handle
	return nil
}

// postDel begins the removal of an entry. A handle may be out of use because its last completion is
// in the array that the program is working through: a signalled DEL of it completes with TM_ERR. An
// unsignalled one, or a handle that was never valid, is a mistake: EINVAL.
func (l *List) postDel(wr *verbs.OpsWR, o *Op) error {
	s := l.slotOf(wr.Handle)
	if s == nil {
		if !o.isSignaled() || int(l.index(wr.Handle)) >= len(l.slots) {
			return fail(syscall.EINVAL, "the handle names no entry")
		}
		o.stale = true
		return nil
	}
	o.entry.Handle = wr.Handle
	l.check.asked(wr.Handle, o.isSignaled())
	if o.isSignaled() {
		s.expectCQE++
	} else {
		l.release(wr.Handle, 1) // at once, which is why only dormant entries allow it (TMO 3.4)
	}
	return nil
}

// Execute has an operation take effect (rules 1 to 4 of TMO 5.2) and sets WRID, Opcode, Status and
// Flags of wc, which is empty, to its outcome. That is a completion only if the operation is
// signalled: then it returns true, and what the completion frees.
func (l *List) Execute(o *Op, wc *verbs.WC) (due Due, signaled bool) {
	l.check.begin(o)
	wc.WRID, wc.Opcode = o.wrid, verbs.WCTMSync
	switch o.Opcode {
	case verbs.WRTagAdd:
		wc.Opcode = verbs.WCTMAdd
		l.insert(o)
	case verbs.WRTagDel:
		wc.Opcode = verbs.WCTMDel
		ok := l.remove(o)
		if !ok {
			wc.Status = verbs.WCTMErr
		}
		l.check.removed(o.entry.Handle, ok)
	}
	if o.Syncs() && !o.Lost {
		l.handled = uint16(o.count)
	}
	l.activate()
	l.check.told(o)
	if l.syncReq(o) && o.isSignaled() {
		wc.Flags = verbs.WCFlagTMSyncReq
	}
	l.check.done(l)
	return Due{o.entry.Handle, o.index + 1}, o.isSignaled()
}

// syncReq reports whether a completion of the operation has SYNC_REQ (TMO 4.6).
func (l *List) syncReq(o *Op) bool {
	sync := l.h != l.handled
	if q := l.quirks; q != nil && q.SyncReq {
		sync = q.driver.executed(o, l.index(o.entry.Handle), l.h)
	}
	return sync && o.Opcode != verbs.WRTagSync
}

// insert appends an entry, which is dormant until activate.
func (l *List) insert(o *Op) {
	i := l.index(o.entry.Handle)
	s := &l.slots[i]
	s.listed, s.entry = true, o.entry
	s.never = o.tag&^o.mask != 0
	l.check.inserted(o.entry.Handle)
	if !s.never {
		s.stored = l.entries.Post(o.tag, o.mask, i)
	}
}

// remove removes an entry from the list. It returns false if the entry was matched, or removed
// before.
func (l *List) remove(o *Op) bool {
	if o.stale {
		return false
	}
	s := &l.slots[l.index(o.entry.Handle)]
	strict := l.strict() && !o.isSignaled()
	if s.entry.Handle != o.entry.Handle || !s.listed {
		if strict {
			_ = l.breach("V11", "unsignalled DEL of an entry that a message has consumed")
		}
		return false
	}
	s.listed = false
	if s.never {
		return true
	}
	if seq, _ := l.entries.Seq(s.stored); strict && seq < l.limit {
		_ = l.breach("V11", "unsignalled DEL of a live entry")
	}
	l.entries.Remove(s.stored)
	return true
}
