package tmsrq

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/verbs"
)

// tagList is the device's list as the engine uses it. It keeps accounts of its own of what the
// device has room for: from the device's errors nothing can be told apart (TMO 3.3).
type tagList struct {
	t       *Transport
	entries []entry
	free    []uint32
	byID    index
	bounce  links.Pool // where messages for short receives land, so that it is software that finds them too long (TMO 6.8)
	direct  int        // smallest buffer that messages go straight into
	longest int        // longest part of one that the device gets
	ops
}

var errUnknown = errors.New("transport/tmsrq: no such receive in the device's list")

func (l *tagList) open(t *Transport) error {
	n := t.cfg.MaxTags
	l.t, l.entries, l.byID = t, make([]entry, n), newIndex(n)
	for i := range l.entries {
		l.entries[i] = entry{bounce: -1}
	}
	l.free = make([]uint32, n)
	for i := range l.free {
		l.free[i] = uint32(n - 1 - i)
	}
	l.direct = max(t.cfg.MaxEager, minLanding)
	l.longest = int(min(t.cfg.Device.Attr().MaxMsgSize, 1<<31))
	l.ops.open(t.SRQ(), uint32(t.cfg.maxOps()), n)
	return l.bounce.Open(t.PD(), t.cfg.bounces(), t.cfg.bounceSize(), verbs.AccessLocalWrite)
}

func (l *tagList) close() error {
	errs := []error{l.bounce.Close()}
	for i := range l.entries {
		if mr := l.entries[i].mr; mr != nil {
			errs = append(errs, mr.Dereg())
		}
	}
	l.entries = nil
	return errors.Join(errs...)
}

// Capacity is how many receives the list holds at most.
func (l *tagList) Capacity() int { return l.t.cfg.MaxTags }

// Covers reports whether a rank's messages come here: any.
func (l *tagList) Covers(int) bool { return true }

// Free is how many more fit now.
func (l *tagList) Free() int {
	if l.queued > 0 {
		return 0
	}
	return min(len(l.free), int(l.room()))
}

// Add offers a receive. Its tag is made canonical: bits outside the mask would keep it from ever
// matching (V19).
func (l *tagList) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error {
	switch {
	case l.t.Broken() != nil:
		return l.t.Broken()
	case l.Free() == 0:
		return transport.ErrAgain
	case l.byID.find(id) >= 0:
		return fmt.Errorf("transport/tmsrq: receive %d is in the device's list already", id)
	}
	slot := l.free[len(l.free)-1]
	e := &l.entries[slot]
	if !l.place(e, buf, tag&mask&packedTag != 0) {
		return transport.ErrAgain
	}
	l.sge[0].Data = e.landing[:min(len(e.landing), l.longest)]
	wr := &l.wr
	wr.Opcode = verbs.WRTagAdd
	wr.Add = verbs.TagAdd{RecvWRID: kindTag<<kindShift | uint64(e.gen)<<32 | uint64(slot), SGList: l.sge[:], Tag: tag & mask, Mask: mask}
	signalled, err := l.post(kindAdd, slot, false, l.count(handled))
	wr.Add = verbs.TagAdd{}
	if err != nil {
		l.release(e)
		return l.refused(err)
	}
	l.free = l.free[:len(l.free)-1]
	*e = entry{id: id, gen: e.gen, handle: wr.Handle, owed: 1, buf: e.buf, landing: e.landing, bounce: e.bounce, mr: e.mr}
	if signalled {
		e.owed++
	}
	l.byID.add(id, slot)
	l.move(e, entryListed)
	return nil
}

// place chooses where a receive's message lands: in buf where every message that the device may put
// there fits, else in a bounce buffer, so that a message that is too long is found by software (TMO
// 6.8).
func (l *tagList) place(e *entry, buf []byte, packed bool) bool {
	e.buf, e.bounce = buf, -1
	if !packed || len(buf) < l.direct {
		slot, landing, ok := l.bounce.Get()
		if ok {
			e.bounce, e.landing = int32(slot), landing
			l.sge[0].LKey = l.bounce.LKey()
		}
		return ok
	}
	mr, err := l.t.PD().RegMR(buf, verbs.AccessLocalWrite)
	if err != nil {
		return false // not for the device: software can receive into any memory (check 7 of TMO 6.2)
	}
	e.mr, e.landing = mr, buf
	l.sge[0].LKey = mr.LKey()
	return true
}

// release lets go of a receive's buffers: the device touches them no more.
func (l *tagList) release(e *entry) {
	if e.bounce >= 0 {
		l.bounce.Put(uint32(e.bounce))
	}
	if e.mr != nil {
		if err := e.mr.Dereg(); err != nil {
			l.t.Break(fmt.Errorf("withdrawing a receive's buffer: %w", err))
		}
	}
	e.buf, e.landing, e.mr, e.bounce = nil, nil, nil, -1
}

// leave ends a receive's time in the list: the device touches its buffers no more, and its id is
// free.
func (l *tagList) leave(e *entry, to entryState) {
	l.byID.remove(e.id)
	l.release(e)
	l.move(e, to)
}

// count is the C of TMO 5.1: what the engine has handled, and what never reached it.
func (l *tagList) count(handled uint32) uint32 {
	if invariant.Enabled {
		l.t.inv.Handled(handled)
	}
	return handled + l.t.skipped
}

// refused turns a failed posting into what the caller gets. Room is counted, so that the device is
// not expected to have none; one that says so all the same is believed.
func (l *tagList) refused(err error) error {
	if isFull(err) && l.pending() {
		return transport.ErrAgain
	}
	l.t.Break(err)
	return l.t.Broken()
}

// find returns the entry of a receive that can still be taken out.
func (l *tagList) find(id uint64) (slot uint32, e *entry, err error) {
	i := l.byID.find(id)
	switch {
	case l.t.Broken() != nil:
		return 0, nil, l.t.Broken()
	case i < 0:
		return 0, nil, errUnknown
	}
	e = &l.entries[i]
	if e.state == entryMatched {
		return 0, nil, fmt.Errorf("transport/tmsrq: receive %d is matched", id)
	}
	return uint32(i), e, nil
}

// Del asks for a receive to be taken out for its user, who waits for the outcome: always signalled,
// never lost (TMO 6.6).
func (l *tagList) Del(id uint64, handled uint32) error {
	slot, e, err := l.find(id)
	switch {
	case err != nil:
		return err
	case e.deleting:
		return fmt.Errorf("transport/tmsrq: receive %d is being deleted", id)
	}
	e.deleting = true
	if invariant.Enabled {
		l.t.inv.Deletes(id)
	}
	return l.remove(slot, l.count(handled))
}

// Drop takes out a dormant receive (TMO 5.3): it cannot be matched before the device has the DEL,
// so that its buffers are free at once. A DEL that its user asked for does the same.
func (l *tagList) Drop(id uint64, handled uint32) error {
	slot, e, err := l.find(id)
	if err != nil {
		return err
	}
	asked := e.deleting
	if invariant.Enabled {
		l.t.inv.Drops(id, asked)
	}
	e.deleting = false
	l.leave(e, entryRemoved)
	if asked {
		return nil
	}
	return l.remove(slot, l.count(handled))
}

// remove posts the DEL of an entry, or queues it. What is queued keeps its count: a later one would
// tell of messages whose DELs come behind (V9).
func (l *tagList) remove(slot, count uint32) error {
	if l.queued > 0 || l.room() == 0 {
		l.put(slot, count)
		return nil
	}
	err := l.postDel(slot, count)
	if isFull(err) && l.pending() {
		l.put(slot, count)
		return nil
	}
	if err != nil {
		return l.refused(err)
	}
	return nil
}

func (l *tagList) put(slot, count uint32) {
	l.entries[slot].queued = true
	l.enqueue(slot, count)
}

func (l *tagList) postDel(slot, count uint32) error {
	e := &l.entries[slot]
	l.wr.Opcode, l.wr.Handle = verbs.WRTagDel, e.handle
	signalled, err := l.post(kindDel, slot, e.deleting, count)
	switch {
	case err != nil:
	case signalled:
		e.owed++
	default:
		e.owed-- // the device reuses the handle at once (TMO 3.4)
		l.settle(slot)
	}
	return err
}

// flush posts the DELs that found no room. It returns how many events it told the sink. Of a
// receive that was matched meanwhile the device may know no more, and its DEL would fail; but the
// count that it carries was taken for told, and goes by a SYNC.
func (l *tagList) flush() (n int) {
	for l.queued > 0 && l.room() > 0 && l.t.Broken() == nil {
		slot, count := l.front()
		e := &l.entries[slot]
		matched := e.state == entryMatched || e.state == entryEnded
		var err error
		if matched {
			l.wr.Opcode = verbs.WRTagSync
			_, err = l.post(kindSync, 0, false, count)
		} else {
			err = l.postDel(slot, count)
		}
		if err != nil {
			_ = l.refused(err) // waits, or has broken the transport
			return n
		}
		l.pop()
		e.queued = false
		id := e.id
		l.settle(slot)
		if matched {
			n++
			l.t.sink.Deleted(id, false)
		}
	}
	return n
}

// settle frees a slot for which the device owes nothing any more (V13).
func (l *tagList) settle(slot uint32) {
	e := &l.entries[slot]
	if e.owed != 0 || e.queued {
		return
	}
	l.move(e, entryFree)
	*e = entry{gen: (e.gen + 1) & genMask, bounce: -1}
	l.free = append(l.free, slot)
}

// Sync tells the device how many messages were handled. One at a time is under way (TMO 5.4).
func (l *tagList) Sync(handled uint32) error {
	switch {
	case l.t.Broken() != nil:
		return l.t.Broken()
	case l.syncing != 0 || l.queued > 0 || l.room() == 0:
		return transport.ErrAgain
	}
	l.wr.Opcode = verbs.WRTagSync
	if _, err := l.post(kindSync, 0, true, l.count(handled)); err != nil {
		return l.refused(err)
	}
	l.syncing = l.wr.WRID
	return nil
}

var _ transport.TagList = (*tagList)(nil)
