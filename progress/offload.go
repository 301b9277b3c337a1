package progress

import (
	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/transport"
)

// Which receives a device matches: the policy of TMO 6, by the rules that V1 to V19 (TMO 7.1) sum
// up.
//
// Engine.posted is the shadow list (V5): every posted, unmatched receive, in posting order,
// wherever it is. Those that the device has not got are in offload.kept as well, which answers the
// overlap rule. An unexpected message searches the shadow list alone; if it finds a receive that is
// in the device, that one is dormant there and taken out by force (TMO 5.3).
//
// models/phase.pml is this protocol as a model that is searched through, and what goes wrong
// without each of its rules.
//
// All is decided under the engine's lock, which also covers the polling of the transport (V7, TMO
// 5.4).

const (
	defaultOffloadMin = 1024 // TMO 6.2: for less the device costs more than it saves

	syncBound = 1 << 14 // unexpected messages after which the device is told (TMO 5.4)

	// promoteLook is how many receives that must stay in software one round of promotion looks at.
	promoteLook = 16

	// Of thrashWindow receives that left the device, three quarters were found by unexpected
	// messages: the device is of no use, nothing is offered for restLeast receives, twice as many
	// the next time. Half of a window matched ends that.
	thrashWindow = 64
	restLeast    = 256
	restMost     = 1 << 16
)

// offload is the part of the engine that deals with a device's tag list. It is not used where the
// transport has none.
type offload struct {
	kept    *matching.Posted[*Op] // receives that software keeps (V6)
	waiting opList                // those of them that the device may yet get, in posting order
	slots   slots                 // receives that the device has, matched ones included, until they end

	// found is the receive that the unexpected message in hand has found in the device, if finding.
	// Its forced DEL waits until the message is counted, which is before the sink's call ends: it
	// tells the device of the message, and no operation may do that before the message is delivered
	// (V8) or before this one (V9).
	found   slot
	finding bool

	least    int    // bytes of the smallest receive that is offered
	most     int    // entries
	low      int    // room at which a list that was full is used again
	foreign  int    // ranks whose messages come by another device
	entries  int    // in the list, not known to be matched
	recalled int    // receives in state opRecalled
	fresh    int    // of them, those added with the count that was reported last
	reported uint32 // C as the device knows it (TMO 5.4)
	full     bool   // the list was full, and has not emptied far enough since
	due      bool   // receives in waiting may have become eligible

	window, rest, backoff int // thrashing: see endLocked
	ended, dropped        int
	resting               int
}

// initOffload decides whether the device matches at all.
func (e *Engine) initOffload() {
	if e.tags == nil {
		return
	}
	o := &e.off
	o.most = e.tags.Capacity()
	if e.cfg.MaxTags != 0 {
		o.most = min(o.most, e.cfg.MaxTags)
	}
	if o.most <= 0 {
		e.tags = nil
		return
	}
	o.least = e.cfg.OffloadMin
	if o.least == 0 {
		o.least = defaultOffloadMin
	}
	o.low = max(o.most/8, 1)
	o.kept = matching.NewPosted[*Op](e.cfg.Seed)
	o.slots.init(readSlots)
	o.window, o.rest, o.backoff = thrashWindow, restLeast, restLeast
}

// offerLocked gives a receive that was just posted to the device, or keeps it in software and says
// why.
func (e *Engine) offerLocked(op *Op) {
	o := &e.off
	large := len(op.buf) >= o.least
	eligible := large && e.coveredLocked(op)
	why := &e.m.Offload.KeptSmall
	switch {
	case !large:
	case !eligible:
		why = &e.m.Offload.KeptPath
	case o.resting > 0:
		why = &e.m.Offload.KeptOff
		if o.resting--; o.resting == 0 {
			o.due = true
		}
	case o.kept.Overlapping(op.tag, op.mask, ^matching.Stamp(0)): // all of them were posted before
		why = &e.m.Offload.KeptOverlap
	case e.addLocked(op):
		return
	default:
		why = &e.m.Offload.KeptFull
		o.due = true
	}
	*why++
	op.kept = o.kept.Post(op.tag, op.mask, op)
	if eligible {
		o.waiting.push(op)
	}
}

// coveredLocked tells whether all messages that a receive could get come by the device with the
// list (TMO 6.4).
func (e *Engine) coveredLocked(op *Op) bool {
	return e.off.foreign == 0 || op.peer >= 0 && !e.peers[op.peer].foreign
}

// forged ends a peer whose message comes by another device and would match a receive that
// only the list's device can get a message for: its tag names another source.
func (p *peer) forged(tag uint64) bool {
	op, _, ok := p.e.posted.Find(tag)
	if !ok || op.state != opOffered {
		return false
	}
	p.lose(protocolError("rank %d sends tag %#x in the name of another rank", p.rank, tag))
	return true
}

// addLocked adds a receive that no earlier one in software overlaps (V6) to the device's list.
func (e *Engine) addLocked(op *Op) bool {
	o := &e.off
	if !e.roomyLocked() {
		return false
	}
	s, ok := o.slots.take(op)
	if !ok {
		return false
	}
	if err := e.tags.Add(s.id(), op.tag&op.mask, op.mask, op.buf, e.handled); err != nil { // V19
		o.slots.release(s)
		o.full = err == transport.ErrAgain
		return false
	}
	e.reportLocked(e.handled)
	op.slot, op.added = s, e.handled
	op.move(opOffered)
	o.entries++
	o.fresh++
	return true
}

// roomyLocked tells whether the list has room. Once it was full it must empty a little before it is
// used again, so that a receive is not moved for each that ends (TMO 6.10).
func (e *Engine) roomyLocked() bool {
	o := &e.off
	room := min(e.tags.Free(), o.most-o.slots.used)
	if o.full {
		o.full = room < o.low
	} else {
		o.full = room <= 0
	}
	return !o.full
}

// reportLocked notes that an operation has carried the count of handled messages to the device.
func (e *Engine) reportLocked(count uint32) {
	e.inv.reporting(e, count)
	if o := &e.off; o.reported != count {
		o.reported, o.fresh = count, 0
	}
}

// promoteLocked offers receives that software has kept, the earliest eligible one first. Where a
// receive stays in software no later one that overlaps it can have gone to the device before it, so
// that the device's order is the posting order wherever it matters (TMO 5.6, 6.3).
func (e *Engine) promoteLocked() (promoted int) {
	o := &e.off
	o.due = false
	if o.resting > 0 || o.waiting.empty() {
		return 0
	}
	look := promoteLook
	for op := o.waiting.head; op != nil && look > 0; {
		next := op.next
		if before, _ := o.kept.Stamp(op.kept); o.kept.Overlapping(op.tag, op.mask, before) {
			look--
		} else if e.addLocked(op) {
			o.kept.Remove(op.kept)
			o.waiting.remove(op)
			e.m.Offload.Promoted++
			promoted++
		} else {
			break
		}
		op = next
	}
	o.due = o.full // room is no event: look again at each poll
	return promoted
}

// leftLocked follows a receive that software has unlinked from the shadow list, for a message or
// because it ends.
func (e *Engine) leftLocked(op *Op) {
	o := &e.off
	if op.state == opPosted {
		o.kept.Remove(op.kept)
		if op.linked {
			o.waiting.remove(op)
		}
		o.due = o.due || !o.waiting.empty() // what it blocked may go
		return
	}
	// It is in the device, dormant: nothing reports its message before its DEL is posted (TMO 5.3).
	o.found, o.finding = op.slot, true
	e.inv.found(op)
	o.slots.detach(op.slot)
	e.goneLocked(op)
	e.endLocked(true)
}

// goneLocked counts an entry out of the list.
func (e *Engine) goneLocked(op *Op) {
	o := &e.off
	o.entries--
	if op.added == o.reported && o.fresh > 0 {
		o.fresh--
	}
}

// releaseLocked takes back the slot of a receive that the device has nothing to do with any more.
func (e *Engine) releaseLocked(s slot) {
	o := &e.off
	e.inv.left(s)
	o.slots.release(s)
	o.due = o.due || !o.waiting.empty()
}

// endLocked watches over the use of the device: how many of the receives that leave it were found
// by unexpected messages (TMO 6.10).
func (e *Engine) endLocked(dropped bool) {
	o := &e.off
	o.ended++
	if dropped {
		o.dropped++
	}
	if o.ended < o.window {
		return
	}
	switch {
	case 4*o.dropped >= 3*o.ended:
		o.resting = o.backoff
		o.backoff = min(2*o.backoff, restMost)
		e.m.Offload.Rests++
	case 2*o.dropped <= o.ended:
		o.backoff = o.rest
	}
	o.ended, o.dropped = 0, 0
}

// tendLocked is the list's share of a poll, which brought n events. It returns how much it posted.
func (e *Engine) tendLocked(n int) (posted int) {
	o := &e.off
	if e.broken != nil {
		return 0
	}
	if o.due {
		posted = e.promoteLocked()
	}
	behind := e.handled - o.reported
	if behind >= syncBound || behind != 0 && n == 0 && o.entries > 0 {
		e.syncLocked()
	}
	return posted
}

// leaveDeviceLocked leaves everything to a device that works by itself. What is dormant could not
// be matched meanwhile.
func (e *Engine) leaveDeviceLocked() {
	if e.tags != nil && e.handled != e.off.reported && e.off.entries > 0 && e.broken == nil {
		e.syncLocked()
	}
	e.cfg.Left()
}

// syncLocked tells the device how many messages were handled, so that what is dormant becomes live
// (TMO 5.4). The transport has one of these under way at most.
func (e *Engine) syncLocked() {
	if e.tags.Sync(e.handled) == nil {
		e.reportLocked(e.handled)
		e.m.Offload.Syncs++
	}
}

// dormantLocked is how many entries the device cannot match yet, as far as can be known here: at
// most those added since it was last told something new, if it has fallen behind since.
func (e *Engine) dormantLocked() int {
	if e.tags == nil || e.handled == e.off.reported {
		return 0
	}
	return e.off.fresh
}
