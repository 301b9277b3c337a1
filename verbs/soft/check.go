package soft

import (
	"sync"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// checks is what a build with -tags invariants knows of a device beside the device's own state:
// records that are kept by other means than what they check. Device.inv is nil in other builds, and
// everything that uses it stands behind invariant.Enabled. A broken rule is a *invariant.Violation:
//
//	owner      two goroutines in the device, or a call without the lock of asynchronous mode
//	once       a request, a receive or a slot ends twice
//	order      cursors of a queue that contradict each other, completions out of order
//	poison     memory was written to, or read, after its life; also by a peer that pushes
//	           (push.go) and does not report it
//	region     keys and generations of registered memory
//	tags       the tag queue contradicts itself
//	V4 ...     invariants of TMO 7.1
//
// What a peer sends, or writes to shared memory, breaks none of them: it is checked in all builds,
// and ends the link.
type checks struct {
	guard  invariant.Exclusive
	strict bool     // the host is a transport: what it does wrong is a Violation too (Device.Strict)
	lent   [][]byte // by the last poll

	bufs   map[*byte]*openBuf // what the device may write to now, by first byte
	pushes map[uint32]*byte   // regions that peers push into, and where they begin
	sends  map[*queuePair]*sendChecks
	recvs  map[*recvQueue]map[uint64][]recvCheck
	tags   map[*tagQueue]*tagChecks
}

// openBuf is a buffer of the host's that n requests under way name as their destination.
type openBuf struct {
	data []byte
	n    int
}

func newChecks() *checks {
	return &checks{bufs: map[*byte]*openBuf{}, pushes: map[uint32]*byte{}, sends: map[*queuePair]*sendChecks{},
		recvs: map[*recvQueue]map[uint64][]recvCheck{}, tags: map[*tagQueue]*tagChecks{}}
}

const ownerAdvice = ": a device and all that was made from it have one owner at a time (package verbs): hold one lock around all " +
	"calls, in asynchronous mode the one that Device.Async was given"

// enter begins a call of the device by its owner; what it returns ends it.
func (d *Device) enter(call string) (leave func()) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *invariant.Violation:
			v.Text += ownerAdvice
			panic(v)
		default:
			panic(v)
		}
	}()
	if a := d.async; a != nil {
		requireHeld(a.owner, call)
	}
	d.inv.guard.Enter(call)
	return d.inv.guard.Leave
}

// requireHeld panics if it can be told that the caller does not hold owner: for sure by an
// invariant.Mutex, and if nobody does by a sync.Mutex.
func requireHeld(owner sync.Locker, call string) {
	switch l := owner.(type) {
	case interface{ AssertHeld(what string) }:
		l.AssertHeld(call)
	case interface{ TryLock() bool }:
		if l.TryLock() {
			owner.Unlock()
			invariant.Broken("owner", "%s without the owner's lock, which nobody holds", call)
		}
	}
}

// lends notes what a poll lends to the host.
func (c *checks) lends(b []byte) { c.lent = append(c.lent, b) }

// lendingEnds overwrites it when the next poll begins.
func (c *checks) lendingEnds() {
	for _, b := range c.lent {
		invariant.PoisonStart(b)
	}
	clear(c.lent)
	c.lent = c.lent[:0]
}

// opens lets the device write to the buffers of a list.
func (c *checks) opens(sges []verbs.SGE) {
	for i := range sges {
		data := sges[i].Data
		if len(data) == 0 {
			continue
		}
		b := c.bufs[&data[0]]
		if b == nil {
			b = &openBuf{}
			c.bufs[&data[0]] = b
		}
		if len(data) > len(b.data) {
			b.data = data
		}
		b.n++
	}
}

// closes is the end of a request that may have written to the buffers of a list.
func (c *checks) closes(sges []verbs.SGE) {
	for i := range sges {
		data := sges[i].Data
		if len(data) == 0 {
			continue
		}
		b := c.bufs[&data[0]]
		invariant.Check(b != nil, "once", "a buffer of %d bytes is given back that no request under way has", len(data))
		if b.n--; b.n > 0 {
			continue
		}
		delete(c.bufs, &data[0])
		for key, at := range c.pushes {
			invariant.Check(at != &data[0], "V4", "a receive ends while a peer may still write to its buffer by region %#x", key)
		}
	}
}

// writes is called before the device writes to dst, a part of the entry s of some request's list.
func (d *Device) writes(s verbs.SGE, dst []byte) {
	c := d.inv
	b := c.bufs[&s.Data[0]]
	invariant.Check(b != nil && mem.Contains(b.data, dst), "V4",
		"%d bytes of a buffer are written to that is no request's, or whose request has ended", len(dst))
	invariant.Check(d.regions.Covers(s.LKey, dst, verbs.AccessLocalWrite), "V4",
		"%d bytes are written to through region %#x, which is withdrawn, does not hold them or is read-only", len(dst), s.LKey)
}

// writesPart is writes for who knows the list only.
func (d *Device) writesPart(sges []verbs.SGE, dst []byte) {
	if len(dst) == 0 {
		return
	}
	for i := range sges {
		if mem.Contains(sges[i].Data, dst) {
			d.writes(sges[i], dst)
			return
		}
	}
	invariant.Broken("V4", "%d bytes are written to that are none of the request's", len(dst))
}

// Places is called before a wire puts bytes where they belong by itself.
func (w *fromWire) Places(dst []byte) {
	d := (*Device)(w)
	for _, b := range d.inv.bufs {
		if mem.Contains(b.data, dst) {
			return
		}
	}
	invariant.Check(len(dst) == 0, "V4", "a wire puts %d bytes where no request wants them any more", len(dst))
}

// peerWrites is called before a peer's write or atomic changes dst, a part of region rkey.
func (d *Device) peerWrites(rkey uint32, dst []byte, need verbs.AccessFlags) {
	invariant.Check(len(dst) == 0 || d.regions.Covers(rkey, dst, need), "V4",
		"a peer changes %d bytes through region %#x, which is withdrawn, does not hold them or does not allow it", len(dst), rkey)
}
