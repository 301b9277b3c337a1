package progress

import (
	"math"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/transport"
)

// Which receives the device matches: the policy of TMO 6, by the rules V1 to V19 (TMO 7.1).
//
// Engine.posted is the posted-receive queue (V5): every posted receive that is not matched, in
// posting order, whether the device has it or not. Those that the device does not have are in
// offload.kept as well, where a new receive looks for earlier ones that overlap it; those that were
// posted since the last one that looked come there when the next one does. An unexpected message
// searches the posted-receive queue alone. A receive that it finds there and that the device has is
// dormant in the device, and is removed from it by a forced DEL (TMO 5.3).
//
// models/phase.pml is a model of this protocol, all of whose states are searched, and shows what
// goes wrong without each of its rules.
//
// All is decided under the engine's lock, which also covers the polling of the transport (V7, TMO
// 5.4). The policy knows receives and the tag list, not the engine; taglist.go connects the two.

const (
	syncBound = 1 << 14 // unexpected messages that the device may be behind before a SYNC (TMO 5.4)

	// promoteLook bounds how many receives that cannot be offloaded one round of promotion
	// examines.
	promoteLook = 16

	// Where unexpected messages have found three quarters of the last thrashSample receives that
	// left the device, offloading does not pay: the next restLeast receives stay in software, and
	// twice as many each time that this comes again. A sample of which the device has matched half
	// resets that.
	thrashSample = 64
	restLeast    = 256
	restMost     = 1 << 16
)

// offload is the policy, with what it knows of the device's tag list; tags is nil where the
// transport has none.
type offload struct {
	tags    transport.TagList
	inv     *engineCheck
	m       OffloadMetrics // without what metrics fills in
	probes  uint64         // posted
	handled uint32         // C of the protocol: unexpected messages that are completely handled

	kept    *matching.Posted[*Op] // posted receives that are not in the device (V6)
	since   matching.Seq          // in the posted-receive queue: receives from here on are not in kept yet
	waiting opList                // those of kept that may be offloaded later, in posting order
	slots   slots                 // receives that the device has, until it has nothing to do with them

	// found is valid while finding is set: the receive in the device that the unexpected message in
	// hand has matched. Its forced DEL reports a count that includes this message. So it waits
	// until the message is delivered (V8), and is the first operation that reports that count (V9);
	// both happen before the sink's call returns.
	found   slot
	finding bool

	least      int    // bytes of the smallest receive that is offloaded; none is as large where there is no list
	most       int    // entries that the list may have
	low        int    // room, in entries, at which a list that was full is used again
	counts     bool   // a message counts, and that is all: there is a list, foreign is 0, and finding is not set
	foreign    int    // ranks whose messages come by another device than the list's
	entries    int    // receives in the list that are not known to be matched
	cancelling int    // receives in state opCancelling
	fresh      int    // of entries, those that were added with the count in reported
	reported   uint32 // C as last reported to the device (TMO 5.4)
	full       bool   // the list was full, and its room has not reached low since
	due        bool   // receives in waiting may have become eligible

	// Watch over thrashing, see end.
	sample, rest   int // constant: thrashSample, restLeast, or a test's
	backoff        int // receives of the next rest
	ended, dropped int // of this sample: receives that left the device, and those found by messages
	resting        int // receives that are still to stay in software
}

// init decides whether the device, whose list is tags, matches at all. large counts its large
// receives.
func (o *offload) init(tags transport.TagList, cfg *Config, large *int) {
	o.least = math.MaxInt
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
	o.tags, o.counts = tags, true
	o.least = cfg.OffloadMin
	o.low = max(o.most/8, 1)
	o.kept = matching.NewPosted[*Op](cfg.seed)
	o.slots.init(readSlots, large)
	o.sample, o.rest, o.backoff = thrashSample, restLeast, restLeast
}

// connected follows that a rank can be reached from now on.
func (o *offload) connected(rank int) {
	if o.tags != nil && !o.tags.Covers(rank) {
		o.foreign++
		o.counts = false
	}
}

// covers reports whether messages of a rank come by the device with the list, if there is one.
func (o *offload) covers(rank int) bool { return o.foreign == 0 || o.tags.Covers(rank) }

// place adds a receive of at least that size, which was just posted, to the tag list, or keeps it
// in software and counts why.
func (o *offload) place(op *Op) {
	if op.kind != kindReceive { // a device could not give its message back
		return
	}
	if !op.covered() {
		o.m.KeptPath++
		return
	}
	posted := op.e.posted
	for k := range posted.Since(o.since) {
		if k != op {
			o.keep(k)
		}
	}
	o.since = posted.NextSeq()
	var why *uint64
	switch {
	case o.resting > 0:
		why = &o.m.KeptOff
		if o.resting--; o.resting == 0 {
			o.due = true
		}
	case o.kept.Overlapping(op.tag, op.mask, ^matching.Seq(0)): // all of them were posted before
		why = &o.m.KeptOverlap
	case o.add(op):
		return
	default:
		why = &o.m.KeptFull
		o.due = true
	}
	*why++
	o.keep(op)
	o.waiting.push(op)
}

// keep appends a receive to those that software keeps, with the sequence number that it has in
// the posted-receive queue.
func (o *offload) keep(op *Op) {
	seq, _ := op.e.posted.Seq(op.handle)
	o.kept.SkipTo(seq)
	op.kept = o.kept.Post(op.tag, op.mask, op)
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
	op.move(opOffloaded)
	o.entries++
	o.fresh++
	return true
}

// roomy reports whether the list has room. Once it was full, low entries must be free before it is
// used again: otherwise each receive that ends would move another one (TMO 6.10).
func (o *offload) roomy() bool {
	room := min(o.tags.Free(), o.most-o.slots.used)
	if o.full {
		o.full = room < o.low
	} else {
		o.full = room <= 0
	}
	return !o.full
}

// report follows that an operation with this unexpected_cnt was posted to the device.
func (o *offload) report(count uint32) {
	o.inv.reporting(o, count)
	if o.reported != count {
		o.reported, o.fresh = count, 0
	}
}

// promote adds receives that were kept in software to the list, in posting order, and returns how
// many. No receive is added while an earlier one that overlaps it is in software, so that the
// device has those that one message could match in posting order (TMO 5.6, 6.3).
func (o *offload) promote() (promoted int) {
	o.due = false
	if o.resting > 0 || o.waiting.empty() {
		return 0
	}
	look := promoteLook
	for op := o.waiting.head; op != nil && look > 0; {
		next := op.next
		if before, _ := o.kept.Seq(op.kept); o.kept.Overlapping(op.tag, op.mask, before) {
			look--
		} else if o.add(op) {
			o.unkeep(op)
			o.waiting.remove(op)
			o.m.Promoted++
			promoted++
		} else {
			break
		}
		op = next
	}
	o.due = o.full // no event says that there is room: each poll looks
	return promoted
}

// unposted follows that software has removed a receive from the posted-receive queue, because a
// message matches it or because it ends.
func (o *offload) unposted(op *Op) {
	if op.state == opPosted {
		o.unkeep(op)
		if op.linked {
			o.waiting.remove(op)
		}
		o.due = o.due || !o.waiting.empty() // one that it overlaps may be offloaded now
		return
	}
	// The device has it, dormant: no operation reports the message before the DEL (TMO 5.3).
	o.found, o.finding, o.counts = op.slot, true, false
	o.inv.found(op)
	o.slots.replace(op.slot, nil)
	o.gone(op)
	o.end(true)
}

// unkeep removes a receive from those that software keeps.
func (o *offload) unkeep(op *Op) {
	o.kept.Remove(op.kept)
	op.kept = 0
}

// gone counts an entry that is known to have left the list.
func (o *offload) gone(op *Op) {
	o.entries--
	if op.added == o.reported && o.fresh > 0 {
		o.fresh--
	}
}

// release frees the slot of a receive that the device has nothing to do with any more.
func (o *offload) release(s slot) {
	o.inv.released(s)
	o.slots.release(s)
	o.due = o.due || !o.waiting.empty()
}

// end counts the receives that leave the device, and how many of them unexpected messages have
// found: too many of those, and offloading rests (TMO 6.10).
func (o *offload) end(dropped bool) {
	o.ended++
	if dropped {
		o.dropped++
	}
	if o.ended < o.sample {
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

// restless reports whether tend has work after a poll that reported n events.
func (o *offload) restless(n int) bool {
	return o.due || o.handled != o.reported && (n == 0 && o.entries > 0 || o.handled-o.reported >= syncBound)
}

// tend does what restless reports after a poll of the transport with n events. It returns how many
// receives it has promoted.
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

// pollingEnded makes dormant entries live, as nobody will poll for a while: a device that works by
// itself could not match them.
func (o *offload) pollingEnded() {
	if o.handled != o.reported && o.entries > 0 {
		o.sync()
	}
}

// sync reports the count by a SYNC, so that dormant entries become live (TMO 5.4). The transport
// refuses a second one while one is under way.
func (o *offload) sync() {
	if o.tags.Sync(o.handled) == nil {
		o.report(o.handled)
		o.m.Syncs++
	}
}

// del posts the DEL of a receive, which has left the posted-receive queue. Where that happens while
// a message is being handled, the DEL reports the count without this message (V9).
func (o *offload) del(op *Op) error {
	o.cancelling++
	err := o.tags.Del(op.slot.id(), o.handled)
	if err == nil {
		o.report(o.handled)
	}
	return err
}

// answered counts a cancelling receive that the device has removed or matched. It reports whether
// that was the last one.
func (o *offload) answered() (last bool) {
	o.cancelling--
	return o.settled()
}

// settled reports whether no receive is cancelling.
func (o *offload) settled() bool { return o.cancelling == 0 }

// count counts an unexpected message, which was delivered, queued or refused before (V8). If
// finding is set then, it has matched a receive in the device, for drop.
func (o *offload) count() {
	o.handled++
	o.inv.counted(o)
}

// drop removes the receive that the message counted last has matched by a forced DEL, the first
// operation that reports the new count (V9).
func (o *offload) drop() error {
	o.finding, o.counts = false, o.foreign == 0
	err := o.tags.ForceDel(o.found.id(), o.handled)
	o.inv.dropped(o.found)
	o.report(o.handled)
	o.m.ForcedDels++
	o.release(o.found)
	return err
}

// fail ends the receives that the device had. The transport is closed, and writes to their buffers
// no more.
func (o *offload) fail(err error) {
	for op := range o.slots.ops() {
		if op.state == opOffloaded {
			op.unpost()
		}
		o.slots.release(op.slot)
		op.complete(Status{}, err)
	}
	o.entries = 0
}

// metrics returns what is counted here and, without a count for each short receive, what follows
// from it: posted is how many receives and probes were, offloaded how many the device got.
func (o *offload) metrics(posted, offloaded uint64) OffloadMetrics {
	m := o.m
	m.Offloaded, m.InDevice, m.Dormant = offloaded, o.entries, o.dormant()
	if o.tags != nil {
		m.KeptSmall = posted - o.probes - (offloaded - m.Promoted) - m.KeptOverlap - m.KeptPath - m.KeptFull - m.KeptOff
	}
	return m
}

// dormant estimates how many entries the device cannot match yet: at most those that were added
// with the count that was reported last, if messages were handled since.
func (o *offload) dormant() int {
	if o.handled == o.reported {
		return 0
	}
	return o.fresh
}
