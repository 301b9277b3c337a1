package tmsrq

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/verbs"
)

// tagList implements transport.TagList on the tag list of the device. It counts itself what the
// device has room for, as the device refuses an operation with the same error whatever is full (TMO
// 3.3).
type tagList struct {
	t       *Transport
	entries []entry     // by slot, Config.MaxTags of them; nil: not open
	free    []uint32    // slots in state free; the last is the next to be used
	byID    links.Index // slots in states listed and matched, by the receive's id
	bounce  links.Pool  // for messages to receives that are too short to be given to the device (TMO 6.8)
	direct  int         // least length of a receive whose buffer is given to the device, bytes
	longest int         // most bytes of a receive's buffer that the device is given
	ops
}

// errUnknown is the error of Del and ForceDel for an id that byID does not find.
var errUnknown = errors.New("transport/tmsrq: no such receive in the device's list")

// open makes the list of a transport whose links are open.
func (l *tagList) open(t *Transport) error {
	n := t.cfg.MaxTags
	l.t, l.entries, l.byID = t, make([]entry, n), links.NewIndex(n)
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

// close deregisters all memory of the list, open or not. The SRQ is destroyed before.
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

// registered implements links.Config.Registered: a receive that is matched ends, and gives its
// buffer back; one that is posted may wait for what cannot be sent.
func (l *tagList) registered() (regions, bytes int, ending bool) {
	if mr := l.bounce.Region(); mr != nil {
		regions, bytes = 1, mr.Len()
	}
	for i := range l.entries {
		if e := &l.entries[i]; e.mr != nil {
			regions, bytes, ending = regions+1, bytes+e.mr.Len(), ending || e.state == entryMatched
		}
	}
	return regions, bytes, ending
}

// Capacity returns how many receives the list holds at most.
func (l *tagList) Capacity() int { return l.t.cfg.MaxTags }

// Covers reports whether messages of a rank arrive at this device: those of all ranks do.
func (l *tagList) Covers(int) bool { return true }

// Free returns how many receives can be added now.
func (l *tagList) Free() int {
	if l.queued > 0 {
		return 0
	}
	return min(len(l.free), int(l.room()))
}

// Add adds a receive. The device is given the tag without the bits outside the mask: with them it
// would never match (V19).
func (l *tagList) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error {
	switch {
	case l.t.Broken() != nil:
		return l.t.Broken()
	case l.Free() == 0:
		return transport.ErrAgain
	case l.byID.Find(id) >= 0:
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
	l.byID.Add(id, slot)
	l.move(e, entryListed)
	return nil
}

// place chooses where the message of a receive lands: in buf if every message that the device may
// put there fits, else in a bounce buffer, so that a message that is too long is found by software
// (TMO 6.8). packed means that the receive matches only tags that name their source; other messages
// may be software rendezvous requests from anybody. It returns false if no buffer is free, or if
// the device cannot use buf.
func (l *tagList) place(e *entry, buf []byte, packed bool) bool {
	if !packed || len(buf) < l.direct {
		slot, landing, ok := l.bounce.Get()
		if ok {
			e.buf, e.bounce, e.landing = buf, int32(slot), landing
			l.sge[0].LKey = l.bounce.LKey()
		}
		return ok
	}
	mr, err := l.t.PD().RegMR(buf, verbs.AccessLocalWrite)
	if err != nil {
		return false // the receive stays in software, which can use any memory (check 7 of TMO 6.2)
	}
	e.mr, e.buf, e.landing = mr, buf, buf
	l.sge[0].LKey = mr.LKey()
	return true
}

// release frees the bounce buffer and the registration of an entry, which the device does not use
// any more.
func (l *tagList) release(e *entry) {
	if e.bounce >= 0 {
		l.bounce.Put(uint32(e.bounce))
	}
	if e.mr != nil {
		if err := e.mr.Dereg(); err != nil {
			l.t.Break(fmt.Errorf("deregistering a receive's buffer: %w", err))
		}
	}
	e.buf, e.landing, e.mr, e.bounce = nil, nil, nil, -1
}

// leave ends the states in which the device has an entry. The device does not use the buffers any
// more, and the receive's id is free. to is entryEnded or entryRemoved.
func (l *tagList) leave(e *entry, to entryState) {
	l.byID.Remove(e.id)
	l.release(e)
	l.move(e, to)
}

// count returns C of TMO 5.1, the count that is posted with an operation: the messages that the
// engine has handled, and those that the device has counted and that never reached the engine.
func (l *tagList) count(handled uint32) uint32 {
	l.t.inv.Handled(handled)
	return handled + l.t.skipped
}

// refused returns what the caller gets when the device refuses an operation. As room is counted, a
// full queue is not expected; ENOMEM is back-pressure all the same, if a completion that makes room
// is to come. Any other error breaks the transport.
func (l *tagList) refused(err error) error {
	if isFull(err) && l.pending() {
		return transport.ErrAgain
	}
	l.t.Break(err)
	return l.t.Broken()
}

// find returns the entry of a receive that Del or ForceDel may name: it is in state listed, and no
// Del of it is pending.
func (l *tagList) find(id uint64) (slot uint32, e *entry, err error) {
	i := l.byID.Find(id)
	switch {
	case l.t.Broken() != nil:
		return 0, nil, l.t.Broken()
	case i < 0:
		return 0, nil, errUnknown
	}
	e = &l.entries[i]
	switch {
	case e.state == entryMatched:
		return 0, nil, fmt.Errorf("transport/tmsrq: receive %d is matched", id)
	case e.deleting:
		return 0, nil, fmt.Errorf("transport/tmsrq: receive %d is being deleted", id)
	}
	return uint32(i), e, nil
}

// Del removes a receive that its user cancels and waits for: its DEL is always signalled, and never
// refused for want of room (TMO 6.6).
func (l *tagList) Del(id uint64, handled uint32) error {
	slot, e, err := l.find(id)
	if err != nil {
		return err
	}
	e.deleting = true
	l.t.inv.Deletes(id)
	return l.remove(slot, l.count(handled))
}

// ForceDel removes a dormant receive (TMO 5.3). The device cannot match it before it executes the
// DEL, so that the buffers are free at once.
func (l *tagList) ForceDel(id uint64, handled uint32) error {
	slot, e, err := l.find(id)
	if err != nil {
		return err
	}
	l.t.inv.ForcedDels(id)
	l.leave(e, entryRemoved)
	return l.remove(slot, l.count(handled))
}

// remove posts the DEL of an entry with a count, or queues both if there is no room or others wait.
// A queued DEL keeps its count: a later count would include messages whose own DELs are queued
// behind it (V9).
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

// put queues the DEL of an entry with its count.
func (l *tagList) put(slot, count uint32) {
	l.entries[slot].queued = true
	l.enqueue(slot, count)
}

// postDel posts the DEL of an entry: signalled if a Del is pending, else by force.
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

// flush posts the queued DELs as far as there is room. It returns how many events it reported to
// the sink. If the receive was matched meanwhile, the device may not know its handle any more, and
// a DEL would fail. The count of that DEL must reach the device all the same, as the engine takes
// it for reported: it goes with a SYNC instead, and the Del has failed.
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
			_ = l.refused(err) // it stays queued, or the transport is broken
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

// settle frees a slot if the device owes no completion for it, and no DEL of it is queued (V13).
func (l *tagList) settle(slot uint32) {
	e := &l.entries[slot]
	if e.owed != 0 || e.queued {
		return
	}
	l.move(e, entryFree)
	*e = entry{gen: (e.gen + 1) & genMask, bounce: -1}
	l.free = append(l.free, slot)
}

// Sync posts a bare SYNC with the unexpected_cnt; one can be outstanding (TMO 5.4).
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
