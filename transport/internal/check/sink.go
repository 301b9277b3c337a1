//go:build invariants

package check

import (
	"bytes"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// Sink passes the calls of a transport on to the Sink of its engine, and keeps shadow state of
// what is under way: what is reported once, in which order, from where, and what is lent for how
// long. The transport tells it what it posts. A broken rule is a *invariant.Violation:
//
//	owner     Poll is called from inside a Sink's method, or while another goroutine polls
//	sink      the Sink is called outside Poll or after Close, or for a rank out of range or lost
//	once      a read, a loss or a list operation ends twice; a rank is greeted or connected twice
//	connect   a rank is heard, or connected, before it was greeted
//	credit    a grant takes credit back
//	V3 ...    invariants of TMO 7.1
//
// What is lent is a copy, which is filled with invariant.PoisonByte when the Sink has returned.
type Sink struct {
	sink transport.Sink // the engine's

	polling atomic.Bool // Poll is under way
	closed  bool        // Close was called
	greeted []bool      // by rank: Greeting was called
	up      []bool      // by rank: Connected was called
	lost    []bool      // by rank: the loss was reported
	active  []int       // by rank: reads and matched receives that have not ended
	granted []uint64    // by rank: the newest total granted, bytes

	reads      map[uint64]int      // by id: reads that have not ended
	order      [][]uint64          // by rank: their ids, as they were posted
	tags       map[uint64]*receive // by id: receives in the device's list
	dels       map[uint64]int      // by receive: calls of Deleted that are still due
	unexpected uint32              // calls of Sink.Eager and Sink.Rndv, modulo 2^32
}

// receive is a receive in the device's list.
type receive struct {
	matched bool
	src     int // once matched: the rank that it counts for in Sink.active, or -1
}

// New puts a Sink between a transport and the sink of its engine. It makes the device strict if it
// can be: a transport must never do what a strict device refuses.
func New(sink transport.Sink, dev verbs.Device, size int) (transport.Sink, *Sink) {
	if d, ok := dev.(interface{ Strict() }); ok {
		d.Strict()
	}
	c := &Sink{sink: sink, greeted: make([]bool, size), up: make([]bool, size), lost: make([]bool, size), active: make([]int, size), granted: make([]uint64, size),
		reads: map[uint64]int{}, order: make([][]uint64, size), tags: map[uint64]*receive{}, dels: map[uint64]int{}}
	return c, c
}

// Polls begins a Poll of the transport; call end when it returns.
func (c *Sink) Polls() (end func()) {
	invariant.Check(c.polling.CompareAndSwap(false, true), "owner", "Poll is called while Poll is under way: a Sink's method may only post, and a transport has one "+
		"owner at a time (package transport)")
	return func() { c.polling.Store(false) }
}

// Closes marks the transport closed: no more calls of the Sink are legal.
func (c *Sink) Closes() { c.closed = true }

// call checks that the transport may call a method of the Sink now. src is the rank that the call
// concerns, -1 if none.
func (c *Sink) call(method string, src int) {
	invariant.Check(c.polling.Load() && !c.closed, "sink", "Sink.%s outside Poll; the transport is closed: %v", method, c.closed)
	invariant.Check(src >= -1 && src < len(c.lost), "sink", "Sink.%s for rank %d of %d", method, src, len(c.lost))
}

// message is call for a method that is illegal once src is lost.
func (c *Sink) message(method string, src int) {
	c.call(method, src)
	invariant.Check(src >= 0 && !c.lost[src], "sink", "Sink.%s for rank %d, which is lost or none", method, src)
	invariant.Check(c.greeted[src], "connect", "Sink.%s for rank %d before Greeting", method, src)
}

// Greeting implements transport.Sink.
func (c *Sink) Greeting(peer int) []byte {
	c.call("Greeting", peer)
	invariant.Check(!c.greeted[peer] && !c.lost[peer], "once", "rank %d is greeted twice, or after its loss", peer)
	c.greeted[peer] = true
	g := c.sink.Greeting(peer)
	invariant.Check(len(g) <= transport.MaxGreeting, "connect", "a greeting of %d bytes", len(g))
	return g
}

// Connected implements transport.Sink.
func (c *Sink) Connected(peer int, greeting []byte) error {
	c.message("Connected", peer)
	invariant.Check(!c.up[peer], "once", "rank %d is connected twice", peer)
	c.up[peer] = true
	lent, end := lend(greeting)
	defer end()
	return c.sink.Connected(peer, lent)
}

// lend returns a copy of b for the Sink, and end, which overwrites the copy with poison.
func lend(b []byte) (lent []byte, end func()) {
	lent = bytes.Clone(b)
	return lent, func() { invariant.Poison(lent) }
}

// Eager implements transport.Sink.
func (c *Sink) Eager(src int, appCtx uint32, tag uint64, payload []byte) {
	c.message("Eager", src)
	c.unexpected++
	lent, end := lend(payload)
	c.sink.Eager(src, appCtx, tag, lent)
	end()
}

// Rndv implements transport.Sink.
func (c *Sink) Rndv(src int, h *transport.RndvHdr) {
	c.message("Rndv", src)
	c.unexpected++
	c.header(h, func(h *transport.RndvHdr) { c.sink.Rndv(src, h) })
}

// header lends a copy of a header during tell.
func (c *Sink) header(h *transport.RndvHdr, tell func(*transport.RndvHdr)) {
	own := *h
	var end func()
	own.Extra, end = lend(h.Extra)
	tell(&own)
	end()
	own = transport.RndvHdr{AppCtx: poisonWord, Tag: poisonWord, VA: poisonWord, RKey: poisonWord, Len: poisonWord}
}

const poisonWord = invariant.PoisonByte * 0x01010101

// Fin implements transport.Sink.
func (c *Sink) Fin(src int, appCtx uint32) {
	c.message("Fin", src)
	c.sink.Fin(src, appCtx)
}

// Ctrl implements transport.Sink.
func (c *Sink) Ctrl(src int, msg []byte) {
	c.message("Ctrl", src)
	lent, end := lend(msg)
	c.sink.Ctrl(src, lent)
	end()
}

// Reads records that a read from a rank was posted.
func (c *Sink) Reads(rank int, id uint64) {
	c.reads[id]++
	c.active[rank]++
	c.order[rank] = append(c.order[rank], id)
}

// ReadEnds records that a read from a rank has ended; ReadDone follows.
func (c *Sink) ReadEnds(rank int, id uint64) {
	c.active[rank]--
	order := c.order[rank]
	invariant.Check(len(order) != 0, "once", "more reads from rank %d end than were posted", rank)
	invariant.Check(order[0] == id, "sink", "read %d from rank %d ends before read %d, which was posted first", id, rank, order[0])
	c.order[rank] = order[1:]
}

// ReadDone implements transport.Sink.
func (c *Sink) ReadDone(id uint64, err error) {
	c.call("ReadDone", -1)
	invariant.Check(c.reads[id] > 0, "once", "read %d ends, which is not under way", id)
	if c.reads[id]--; c.reads[id] == 0 {
		delete(c.reads, id)
	}
	c.sink.ReadDone(id, err)
}

// PeerLost implements transport.Sink.
func (c *Sink) PeerLost(peer int, err error) {
	c.call("PeerLost", peer)
	invariant.Check(!c.lost[peer], "once", "the loss of rank %d is told twice", peer)
	invariant.Check(c.active[peer] == 0, "sink", "the loss of rank %d is told while %d reads or matched receives have not ended", peer, c.active[peer])
	c.lost[peer] = true
	c.sink.PeerLost(peer, err)
}

// Grants records that a total of credit was granted to a rank: it never shrinks.
func (c *Sink) Grants(rank int, total uint64) {
	invariant.Check(total >= c.granted[rank], "credit", "rank %d is granted %d bytes in all, after %d", rank, total, c.granted[rank])
	c.granted[rank] = total
}
