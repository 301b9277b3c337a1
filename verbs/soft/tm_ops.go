package soft

import (
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// tagOp is a list operation that was posted and has not taken effect.
type tagOp struct {
	op     verbs.OpsOpcode
	flags  verbs.OpsFlags
	stale  bool // DEL of a handle that is not in use any more
	hnd    uint32
	count  uint32 // unexpected_cnt, with OpsTMSync
	index  uint32 // position in the command queue
	wrid   uint64
	recvID uint64 // WRID of the receive that an ADD adds
	tag    uint64
	mask   uint64
	buf    sge
	due    int64 // takes effect when tagQueue.polls is this
}

// PostSRQOps posts list operations (TMO 3). Those before the first that fails take effect.
func (s *sharedQueue) PostSRQOps(wr *verbs.OpsWR) (*verbs.OpsWR, error) {
	if invariant.Enabled {
		defer s.d.enter("post_srq_ops")()
	}
	const op = "post_srq_ops"
	t := s.tm
	switch {
	case t == nil && s.d.cfg.tm.MaxNumTags < 0:
		return nil, fail(op, syscall.EOPNOTSUPP, "this device has no tag matching") // bad_wr is not written (TMO 3.3)
	case t == nil || s.gone:
		return wr, fail(op, syscall.EINVAL, "not a live tag-matching SRQ")
	}
	for ; wr != nil; wr = wr.Next {
		if err := t.post(wr); err != nil {
			return wr, err
		}
	}
	if t.slow && t.d.armed {
		t.d.notif.Wake()
	}
	return nil, nil
}

// post checks one operation, takes its slots, and executes it or, with DelayOps, queues it.
func (t *tagQueue) post(wr *verbs.OpsWR) error {
	const op = "post_srq_ops"
	signaled := wr.Flags&verbs.OpsSignaled != 0
	if wr.Flags&^(verbs.OpsSignaled|verbs.OpsTMSync) != 0 {
		return fail(op, syscall.EINVAL, "unknown flags")
	}
	used := t.posted - t.tail
	switch {
	case used >= t.maxOps:
		return fail(op, syscall.ENOMEM, "MaxOps operations are outstanding: slots come back when a signalled one's completion is polled")
	case t.cfg.Strict && !signaled && used+1 == t.maxOps && int32(t.signaled-t.tail) <= 0:
		return t.breach("V14", "with this unsignalled operation the command queue would be stuck for ever")
	}
	o := &t.op
	*o = tagOp{op: wr.Opcode, flags: wr.Flags, count: wr.UnexpectedCnt, index: t.posted, wrid: wr.WRID, hnd: noHandle}
	var err error
	switch wr.Opcode {
	case verbs.WRTagAdd:
		err = t.postAdd(wr, o)
	case verbs.WRTagDel:
		err = t.postDel(wr, o)
	case verbs.WRTagSync:
	default:
		err = fail(op, syscall.EINVAL, "unknown opcode")
	}
	if err != nil {
		return err
	}
	t.posted++
	if signaled {
		t.signaled = t.posted
	}
	if invariant.Enabled {
		t.checkPostedOp()
	}
	if t.cfg.DelayOps == 0 {
		t.run(o)
		return nil
	}
	o.due = t.polls + int64(t.rng.IntN(t.cfg.DelayOps+1))
	t.pending.push(*o)
	t.goSlow()
	return nil
}

// postAdd takes the first free slot, unless it is the last free one (TMO 3.4).
func (t *tagQueue) postAdd(wr *verbs.OpsWR, o *tagOp) error {
	const op = "post_srq_ops"
	a := &wr.Add
	switch {
	case len(a.SGList) > tmMaxSGE:
		return fail(op, syscall.EINVAL, "more scatter/gather entries than the device's TM.MaxSGE")
	case t.cfg.Strict && a.Tag&^a.Mask != 0:
		return t.breach("V19", "the tag has bits outside the mask, nothing could match it")
	case t.nfree <= 1:
		return fail(op, syscall.ENOMEM, "the tag list is full")
	}
	i := t.free[t.head]
	t.head = t.next(t.head)
	t.nfree--
	s := &t.slots[i]
	s.expectCQE = 1
	if wr.Flags&verbs.OpsSignaled != 0 {
		s.expectCQE = 2
	}
	o.hnd = s.gen<<t.slotBits | i
	o.recvID, o.tag, o.mask = a.RecvWRID, a.Tag, a.Mask
	if len(a.SGList) > 0 {
		o.buf = sgeOf(&a.SGList[0])
	}
	if invariant.Enabled {
		t.checkAdded(o, s.expectCQE == 2)
	}
	wr.Handle = o.hnd
	return nil
}

// next returns the position behind i in the ring of free slots.
func (t *tagQueue) next(i uint32) uint32 {
	if i++; i == uint32(len(t.free)) {
		return 0
	}
	return i
}

// slotOf returns the slot of a handle, or nil if the handle is not in use.
func (t *tagQueue) slotOf(hnd uint32) *tagSlot {
	i := hnd & (1<<t.slotBits - 1)
	if int(i) >= len(t.slots) {
		return nil
	}
	s := &t.slots[i]
	if s.gen<<t.slotBits != hnd&^(1<<t.slotBits-1) || s.expectCQE == 0 {
		return nil
	}
	return s
}

// postDel begins the removal of an entry. A handle may be out of use because its last completion is
// in the array that the program is working through: a signalled DEL of it completes with TM_ERR. An
// unsignalled one, or a handle that was never valid, is a mistake: EINVAL.
func (t *tagQueue) postDel(wr *verbs.OpsWR, o *tagOp) error {
	signaled := wr.Flags&verbs.OpsSignaled != 0
	s := t.slotOf(wr.Handle)
	if s == nil {
		i := wr.Handle & (1<<t.slotBits - 1)
		if !signaled || int(i) >= len(t.slots) {
			return fail("post_srq_ops", syscall.EINVAL, "the handle names no entry")
		}
		o.stale = true
		return nil
	}
	o.hnd = wr.Handle
	if invariant.Enabled {
		t.checkDel(o.hnd, signaled)
	}
	if signaled {
		s.expectCQE++
	} else {
		t.release(wr.Handle, 1) // at once, which is why only dormant entries allow it (TMO 3.4)
	}
	return nil
}

// release subtracts n from expectCQE of a handle's slot, and frees the slot at 0. It returns false
// if the handle is not in use.
func (t *tagQueue) release(hnd, n uint32) bool {
	s := t.slotOf(hnd)
	if s == nil {
		return false
	}
	if s.expectCQE -= min(n, s.expectCQE); s.expectCQE == 0 {
		if invariant.Enabled {
			t.checkFreed(hnd)
		}
		s.gen++
		i := t.head + t.nfree
		if i >= uint32(len(t.free)) {
			i -= uint32(len(t.free))
		}
		t.free[i] = hnd & (1<<t.slotBits - 1)
		t.nfree++
	}
	return true
}

// run executes an operation (rules 1 to 4 of TMO 5.2).
func (t *tagQueue) run(o *tagOp) {
	if invariant.Enabled {
		defer t.checkOp(o)()
	}
	wc := verbs.WC{WRID: o.wrid, Opcode: verbs.WCTMSync}
	told := t.mlx.last // the newest unexpected_cnt
	if o.flags&verbs.OpsTMSync != 0 {
		told = int64(o.count)
	}
	base := told // what the mlx5 driver compares with
	switch o.op {
	case verbs.WRTagAdd:
		wc.Opcode = verbs.WCTMAdd
		t.insert(o, told)
	case verbs.WRTagDel:
		wc.Opcode = verbs.WCTMDel
		if !o.stale {
			base = t.slots[o.hnd&(1<<t.slotBits-1)].count
		}
		if !t.remove(o) {
			wc.Status = verbs.WCTMErr
		}
		if invariant.Enabled {
			t.checkRemoved(o.hnd, wc.Status == verbs.WCSuccess)
		}
	}
	if o.flags&verbs.OpsTMSync != 0 && !t.dropped(o) {
		t.c = uint16(o.count)
	}
	t.mlx.last = told
	t.activate()
	if invariant.Enabled {
		t.checkTold(o)
	}
	if o.flags&verbs.OpsSignaled == 0 {
		return
	}
	if o.op != verbs.WRTagSync && t.opSyncReq(base) {
		wc.Flags = verbs.WCFlagTMSyncReq
	}
	t.cq.push(&wc, frees{tm: t, hnd: o.hnd, upto: o.index + 1}, false)
}

// dropped reports whether DropSync makes an operation's count have no effect.
func (t *tagQueue) dropped(o *tagOp) bool {
	if t.cfg.DropSync == 0 || o.op != verbs.WRTagSync {
		return false
	}
	t.syncs++
	return t.syncs%t.cfg.DropSync == 0
}

// opSyncReq reports whether a completion of ADD or DEL has SYNC_REQ (TMO 4.6).
func (t *tagQueue) opSyncReq(base int64) bool {
	if t.cfg.QuirkSyncReq {
		return int64(t.h()) != base
	}
	return t.h() != t.c
}

// syncReqFrom is how many unexpected messages software may leave unreported: completions of further
// ones have SYNC_REQ (TMO 4.6).
const syncReqFrom = 0x3fff

// unexpSyncReq reports whether the completion of an unexpected message, which was counted already,
// has SYNC_REQ.
func (t *tagQueue) unexpSyncReq() bool {
	if t.cfg.QuirkSyncReq {
		return t.in-t.mlx.out > syncReqFrom
	}
	return t.h()-t.c > syncReqFrom
}

// insert appends an entry, which is dormant until activate.
func (t *tagQueue) insert(o *tagOp, told int64) {
	i := o.hnd & (1<<t.slotBits - 1)
	s := &t.slots[i]
	s.hnd, s.listed, s.wrid, s.buf, s.count = o.hnd, true, o.recvID, o.buf, told
	s.never = o.tag&^o.mask != 0
	if invariant.Enabled {
		t.checkInserted(o.hnd)
	}
	if !s.never {
		s.entry = t.list.Post(o.tag, o.mask, i)
	}
	if o.flags&verbs.OpsTMSync != 0 {
		t.mlx.out = int64(o.count)
	}
}

// remove removes an entry from the list. It returns false if the entry was matched, or removed
// before.
func (t *tagQueue) remove(o *tagOp) bool {
	if o.stale {
		return false
	}
	s := &t.slots[o.hnd&(1<<t.slotBits-1)]
	unsignaled := o.flags&verbs.OpsSignaled == 0
	if s.hnd != o.hnd || !s.listed {
		if unsignaled {
			t.strictErr("unsignalled DEL of an entry that a message has consumed")
		}
		return false
	}
	s.listed = false
	if s.never {
		return true
	}
	if stamp, _ := t.list.Stamp(s.entry); unsignaled && stamp < t.limit {
		t.strictErr("unsignalled DEL of a live entry")
	}
	t.list.Remove(s.entry)
	return true
}

// polled is called when the program polls a completion. It frees the slots that this allows (TMO
// 3.4).
func (t *tagQueue) polled(wc *verbs.WC, hnd, upto uint32) {
	if invariant.Enabled {
		t.checkPolled(wc, hnd)
		defer t.checkNow()
	}
	switch wc.Opcode {
	case verbs.WCTMAdd:
		t.tail = upto
		t.release(hnd, 1)
	case verbs.WCTMDel:
		t.tail = upto
		if hnd == noHandle {
			return
		}
		if wc.Status == verbs.WCSuccess {
			t.release(hnd, 2)
		} else {
			t.release(hnd, 1) // the receive was matched, and its completion releases the rest
		}
	case verbs.WCTMSync:
		t.tail = upto
	default:
		if !t.release(hnd, 1) && t.cfg.Strict {
			if invariant.Enabled && t.d.inv.strict {
				invariant.Broken("V13", "a receive's end, wr_id %#x, comes for handle %#x, which is used again", wc.WRID, hnd)
			}
			wc.Status = verbs.WCGeneralErr // V13: the slot is in use again (TMO 3.4)
		}
	}
}
