package rc

import (
	"bytes"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// Checks is what a build with -tags invariants keeps beside a transport's own state. It stands
// between the transport and its Sink, and holds both to package transport: what is told once, in
// which order, from where, and what is lent for how long. It is exported for transports that are
// built on this package. A broken rule is a *invariant.Violation:
//
//	owner     two goroutines in the transport at once; Poll from inside a Sink's method
//	sink      the Sink is called outside Poll or after Close, or for a rank out of range or lost
//	once      a read, a loss, a list operation or a slot ends twice
//	credit    a grant takes credit back
//	poison    memory was written after its life; lent memory is then filled with PoisonByte
//	V3 ...    invariants of TMO 7.1
type Checks struct {
	sink   transport.Sink
	calls  invariant.Exclusive
	inside invariant.Guard // held during a method of the Sink, which may call posting methods only

	polling   bool
	sinkCalls atomic.Int32 // running methods of the Sink
	closed    bool
	lost      []bool   // by rank
	active    []int    // reads and matched receives in progress, by rank
	granted   []uint64 // by rank

	reads      map[uint64]int // reads in progress, by id
	tags       map[uint64]*tagCheck
	dels       map[uint64]int // by receive: Deleted calls that are still due
	unexpected uint32         // calls of Sink.Eager and Sink.Rndv
}

// tagCheck is a receive in the device's list.
type tagCheck struct {
	matched bool
	src     int
}

// Check puts Checks in front of a transport's Sink, and makes the device strict where it can be: a
// transport must never do what a strict device refuses. Call it only with invariant.Enabled.
func Check(sink transport.Sink, dev verbs.Device, size int) *Checks {
	if d, ok := dev.(interface{ Strict() }); ok {
		d.Strict()
	}
	return &Checks{sink: sink, lost: make([]bool, size), active: make([]int, size), granted: make([]uint64, size),
		reads: map[uint64]int{}, tags: map[uint64]*tagCheck{}, dels: map[uint64]int{}}
}

// Enter begins a call of the transport; call leave at its end. Inside a method of the Sink it
// nests.
func (c *Checks) Enter(call string) (leave func()) {
	defer func() {
		r := recover()
		if v, ok := r.(*invariant.Violation); ok {
			v.Text += ": a transport has one owner at a time (package transport): hold one lock around all calls but Wait and Wake"
		}
		if r != nil {
			panic(r)
		}
	}()
	if c.sinkCalls.Load() > 0 {
		c.inside.Enter(call)
		return c.inside.Leave
	}
	c.calls.Enter(call)
	return c.calls.Leave
}

// Polling is Enter for Poll.
func (c *Checks) Polling() func() {
	leave := c.Enter("Poll")
	invariant.Check(!c.polling, "owner", "Poll is called from inside a Sink's method, which may only post")
	c.polling = true
	return func() {
		c.polling = false
		leave()
	}
}

// Closed marks the transport closed: no more calls of the Sink are legal.
func (c *Checks) Closed() { c.closed = true }

// sinkCall begins a call of the Sink. src is -1 where it concerns no rank.
func (c *Checks) sinkCall(method string, src int) (done func()) {
	invariant.Check(c.polling && !c.closed, "sink", "Sink.%s outside Poll; the transport is closed: %v", method, c.closed)
	invariant.Check(src >= -1 && src < len(c.lost), "sink", "Sink.%s for rank %d of %d", method, src, len(c.lost))
	c.inside.Enter("Sink." + method)
	c.sinkCalls.Add(1)
	return func() {
		c.sinkCalls.Add(-1)
		c.inside.Leave()
	}
}

// message begins a call of the Sink that is illegal once src is lost.
func (c *Checks) message(method string, src int) (done func()) {
	done = c.sinkCall(method, src)
	invariant.Check(src >= 0 && !c.lost[src], "sink", "Sink.%s for rank %d, which is lost or none", method, src)
	return done
}

// lend returns a copy of b for the Sink, and end, which overwrites the copy with poison.
func lend(b []byte) (lent []byte, end func()) {
	lent = bytes.Clone(b)
	return lent, func() { invariant.Poison(lent) }
}

// Eager implements transport.Sink.
func (c *Checks) Eager(src int, appCtx uint32, tag uint64, payload []byte) {
	defer c.message("Eager", src)()
	c.unexpected++
	lent, end := lend(payload)
	c.sink.Eager(src, appCtx, tag, lent)
	end()
}

// Rndv implements transport.Sink.
func (c *Checks) Rndv(src int, h *transport.RndvHdr) {
	defer c.message("Rndv", src)()
	c.unexpected++
	c.header(h, func(h *transport.RndvHdr) { c.sink.Rndv(src, h) })
}

// header lends a copy of a header during tell.
func (c *Checks) header(h *transport.RndvHdr, tell func(*transport.RndvHdr)) {
	own := *h
	var end func()
	own.Extra, end = lend(h.Extra)
	tell(&own)
	end()
	own = transport.RndvHdr{AppCtx: poisonWord, Tag: poisonWord, VA: poisonWord, RKey: poisonWord, Len: poisonWord}
}

const poisonWord = invariant.PoisonByte * 0x01010101

// Fin implements transport.Sink.
func (c *Checks) Fin(src int, appCtx uint32) {
	defer c.message("Fin", src)()
	c.sink.Fin(src, appCtx)
}

// Ctrl implements transport.Sink.
func (c *Checks) Ctrl(src int, msg []byte) {
	defer c.message("Ctrl", src)()
	lent, end := lend(msg)
	c.sink.Ctrl(src, lent)
	end()
}

// Reads records a posted read.
func (c *Checks) Reads(rank int, id uint64) {
	c.reads[id]++
	c.active[rank]++
}

// ReadEnds records the end of a read before the Sink is called.
func (c *Checks) ReadEnds(rank int) {
	c.active[rank]--
	invariant.Check(c.active[rank] >= 0, "once", "more reads from rank %d end than were posted", rank)
}

// ReadDone implements transport.Sink.
func (c *Checks) ReadDone(id uint64, err error) {
	defer c.sinkCall("ReadDone", -1)()
	invariant.Check(c.reads[id] > 0, "once", "read %d ends, which is not under way", id)
	if c.reads[id]--; c.reads[id] == 0 {
		delete(c.reads, id)
	}
	c.sink.ReadDone(id, err)
}

// PeerLost implements transport.Sink.
func (c *Checks) PeerLost(peer int, err error) {
	defer c.sinkCall("PeerLost", peer)()
	invariant.Check(!c.lost[peer], "once", "the loss of rank %d is told twice", peer)
	invariant.Check(c.active[peer] == 0, "sink", "the loss of rank %d is told while %d reads or matched receives have not ended", peer, c.active[peer])
	c.lost[peer] = true
	c.sink.PeerLost(peer, err)
}

// Grants records a grant, which must not shrink.
func (c *Checks) Grants(rank int, total uint64) {
	invariant.Check(total >= c.granted[rank], "credit", "rank %d is granted %d bytes in all, after %d", rank, total, c.granted[rank])
	c.granted[rank] = total
}

// checkHeader checks the header of a message to be sent: a tagged message is never NO_TAG (V17).
func (l *Links) checkHeader(wr *verbs.SendWR) {
	if wr.Opcode != verbs.WRSend && wr.Opcode != verbs.WRSendWithImm {
		return
	}
	b := wr.SGList[0].Data
	switch op := verbs.TMHOpcode(b[0]); op {
	case verbs.TMHNoTag:
		invariant.Check(len(b) >= ctrlSize && b[1] == ctrlKind && wr.Opcode == verbs.WRSend, "V17", "a NO_TAG message that is no control message")
	case verbs.TMHRndv, verbs.TMHFin, verbs.TMHEager:
		invariant.Check(len(b) >= verbs.TMHSize && (op == verbs.TMHEager || wr.Opcode == verbs.WRSend), "V17",
			"a message with opcode %d and a header of %d bytes, sent by opcode %d", op, len(b), wr.Opcode)
	default:
		invariant.Broken("V17", "a message with unknown opcode %d is sent", op)
	}
}

// checkCompleted checks the sequence number of a completed request.
func (l *Links) checkCompleted(p *peer, seq uint32) {
	invariant.Check(seq-p.done < p.posted-p.done, "once", "request %d to rank %d completes, %d are posted and %d done", seq,
		l.Rank(p.qp.Num()), p.posted, p.done)
	invariant.Check(p.state != linkUp || p.waiting > 0, "once", "request %d completes: no signalled one is under way", seq)
}

// ringChecks tracks who owns each buffer of a Ring.
type ringChecks struct {
	state  []slotState
	filled []uint32
}

type slotState uint8

const (
	slotOut     slotState = iota // never posted
	slotPosted                   // the device owns it
	slotTaken                    // a completion has returned it
	slotHandled                  // its message was handled
)

func newRingChecks(depth int) *ringChecks {
	return &ringChecks{state: make([]slotState, depth), filled: make([]uint32, depth)}
}

// Took records that a completion has returned a slot. For transports built on this package; a no-op
// without -tags invariants.
func (r *Ring) Took(slot uint64) {
	if !invariant.Enabled {
		return
	}
	s := &r.inv.state[slot]
	invariant.Check(*s == slotPosted, "once", "receive buffer %d completes, which is not posted", slot)
	*s = slotTaken
}

// Handled records that the message in a slot was handled. For transports built on this package; a
// no-op without -tags invariants.
func (r *Ring) Handled(slot uint64) {
	if invariant.Enabled {
		r.inv.state[slot] = slotHandled
	}
}

// checkPosted checks V15: a buffer is posted again only after its message was handled. It
// overwrites the buffer.
func (r *Ring) checkPosted(slot uint64) {
	s := &r.inv.state[slot]
	invariant.Check(*s == slotOut || *s == slotHandled, "V15", "receive buffer %d is posted before its message was handled", slot)
	*s = slotPosted
	off := int(slot) * r.size
	invariant.PoisonStart(r.slab[off:][:r.inv.filled[slot]])
	r.inv.filled[slot] = 0
}

func (r *Ring) checkFilled(slot uint64, n uint32) {
	invariant.Check(r.inv.state[slot] == slotTaken, "V15", "receive buffer %d is read, which is the device's", slot)
	r.inv.filled[slot] = n
}
