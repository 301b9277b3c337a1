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
// 5.4). The policy knows receives and the list, not the engine: taglist.go is what lies between.

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

// offload is the policy and what it knows of the device's tag list. Where the transport has none,
// tags is nil and the rest is not used, but that messages are counted.
type offload struct {
	tags    transport.TagList
	inv     *engineCheck
	m       OffloadMetrics
	handled uint32 // C of the protocol: unexpected messages that are completely handled

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

	window, rest, backoff int // thrashing: see end
	ended, dropped        int
	resting               int
}

// init decides whether the device, whose list is tags, matches at all.
func (o *offload) init(tags transport.TagList, cfg *Config) {
	if tags == nil {
		return
	}
	o.most = tags.Capacity()
	if cfg.MaxTags != 0 {
		o.most = min(o.most, cfg.MaxTags)
	}
	if o.most <= 0 {
		return
	}
	o.tags = tags
	o.least = cfg.OffloadMin
	if o.least == 0 {
		o.least = defaultOffloadMin
	}
	o.low = max(o.most/8, 1)
	o.kept = matching.NewPosted[*Op](cfg.Seed)
	o.slots.init(readSlots)
	o.window, o.rest, o.backoff = thrashWindow, restLeast, restLeast
}

// offer gives a receive that was just posted to the device, or keeps it in software and says why.
func (o *offload) offer(op *Op) {
	large := len(op.buf) >= o.least
	eligible := large && op.covered()
	why := &o.m.KeptSmall
	switch {
	case !large:
	case !eligible:
		why = &o.m.KeptPath
	case o.resting > 0:
		why = &o.m.KeptOff
		if o.resting--; o.resting == 0 {
			o.due = true
		}
	case o.kept.Overlapping(op.tag, op.mask, ^matching.Stamp(0)): // all of them were posted before
		why = &o.m.KeptOverlap
	case o.add(op):
		return
	default:
		why = &o.m.KeptFull
		o.due = true
	}
	*why++
	op.kept = o.kept.Post(op.tag, op.mask, op)
	if eligible {
		o.waiting.push(op)
	}
}

// add adds a receive that no earlier one in software overlaps (V6) to the device's list.
func (o *offload) add(op *Op) bool {
	if !o.roomy() {
		return false
	}
	s, ok := o.slots.take(op)
	if !ok {
		return false
	}
	if err := o.tags.Add(s.id(), op.tag&op.mask, op.mask, op.buf, o.handled); err != nil { // V19
		o.slots.release(s)
		o.full = err == transport.ErrAgain
		return false
	}
	o.report(o.handled)
	op.slot, op.added = s, o.handled
	op.move(opOffered)
	o.entries++
	o.fresh++
	return true
}

// roomy tells whether the list has room. Once it was full it must empty a little before it is
// used again, so that a receive is not moved for each that ends (TMO 6.10).
func (o *offload) roomy() bool {
	room := min(o.tags.Free(), o.most-o.slots.used)
	if o.full {
		o.full = room < o.low
	} else {
		o.full = room <= 0
	}
	return !o.full
}

// report notes that an operation has carried the count of handled messages to the device.
func (o *offload) report(count uint32) {
	o.inv.reporting(o, count)
	if o.reported != count {
		o.reported, o.fresh = count, 0
	}
}

// promote offers receives that software has kept, the earliest eligible one first. Where a
// receive stays in software no later one that overlaps it can have gone to the device before it, so
// that the device's order is the posting order wherever it matters (TMO 5.6, 6.3).
func (o *offload) promote() (promoted int) {
	o.due = false
	if o.resting > 0 || o.waiting.empty() {
		return 0
	}
	look := promoteLook
	for op := o.waiting.head; op != nil && look > 0; {
		next := op.next
		if before, _ := o.kept.Stamp(op.kept); o.kept.Overlapping(op.tag, op.mask, before) {
			look--
		} else if o.add(op) {
			o.kept.Remove(op.kept)
			o.waiting.remove(op)
			o.m.Promoted++
			promoted++
		} else {
			break
		}
		op = next
	}
	o.due = o.full // room is no event: look again at each poll
	return promoted
}

// left follows a receive that software has unlinked from the shadow list, for a message or because
// it ends.
func (o *offload) left(op *Op) {
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
	o.inv.found(op)
	o.slots.detach(op.slot)
	o.gone(op)
	o.end(true)
}

// gone counts an entry out of the list.
func (o *offload) gone(op *Op) {
	o.entries--
	if op.added == o.reported && o.fresh > 0 {
		o.fresh--
	}
}

// release takes back the slot of a receive that the device has nothing to do with any more.
func (o *offload) release(s slot) {
	o.inv.left(s)
	o.slots.release(s)
	o.due = o.due || !o.waiting.empty()
}

// end watches over the use of the device: how many of the receives that leave it were found
// by unexpected messages (TMO 6.10).
func (o *offload) end(dropped bool) {
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
		o.m.Rests++
	case 2*o.dropped <= o.ended:
		o.backoff = o.rest
	}
	o.ended, o.dropped = 0, 0
}

// tend is the list's share of a poll, which brought n events. It returns how much it posted.
func (o *offload) tend(n int) (posted int) {
	if o.due {
		posted = o.promote()
	}
	behind := o.handled - o.reported
	if behind >= syncBound || behind != 0 && n == 0 && o.entries > 0 {
		o.sync()
	}
	return posted
}

// leave is called when the device is left to itself for a while, if it works by itself. What is
// dormant could not be matched meanwhile.
func (o *offload) leave() {
	if o.handled != o.reported && o.entries > 0 {
		o.sync()
	}
}

// sync tells the device how many messages were handled, so that what is dormant becomes live (TMO
// 5.4). The transport has one of these under way at most.
func (o *offload) sync() {
	if o.tags.Sync(o.handled) == nil {
		o.report(o.handled)
		o.m.Syncs++
	}
}

// recall asks the device for a receive, which has left the shadow list. A DEL from inside the
// handling of a message, which may have found a receive that is not taken out yet, carries the
// count without that message.
func (o *offload) recall(op *Op) {
	o.recalled++
	if o.tags.Del(op.slot.id(), o.handled) == nil { // else the transport is broken, and the next Poll says so
		o.report(o.handled)
	}
}

// answered counts a receive that the device was asked for and has given up or matched, and reports
// whether it was the last.
func (o *offload) answered() (last bool) {
	o.recalled--
	return o.recalled == 0
}

// count counts an unexpected message once it is delivered, visible, or refused (V8), and then takes
// the receive that it found out of the device: by the operation that tells of it, or before any
// that does (V9).
func (o *offload) count() {
	o.handled++
	o.inv.counted(o)
	if !o.finding {
		return
	}
	o.finding = false
	_ = o.tags.Drop(o.found.id(), o.handled) // fails as in recall
	o.inv.dropped(o.found)
	o.report(o.handled)
	o.m.Drops++
	o.release(o.found)
}

// dormant is how many entries the device cannot match yet, as far as can be known here: at most
// those added since it was last told something new, if it has fallen behind since.
func (o *offload) dormant() int {
	if o.handled == o.reported {
		return 0
	}
	return o.fresh
}
