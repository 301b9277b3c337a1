//go:build invariants

package soft

import (
	"sync"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// checks are redundant records of a device's state, kept by a build with -tags invariants by other
// means than the state that they check; check_off.go has what is left of them in others. A rule
// that is broken is a *invariant.Violation:
//
//	owner      two goroutines call the device, or a call does not hold the lock of Device.Async
//	once       a request, a receive or a slot ends twice
//	order      positions of a queue contradict each other, or completions are out of order
//	poison     memory was written to, or read, when it was free or no longer lent
//	region     keys and generations of registered memory
//	tags       the tag queue contradicts itself
//	V4 ...     invariants of TMO 7.1
//
// No packet of a peer, and nothing that it writes to shared memory, can break one of these rules:
// that is checked in all builds, and ends the link. Only a push (push.go) of a peer that does not
// report it breaks rule poison.
type checks struct {
	guard  invariant.Exclusive
	leave  func() // guard.Leave; made once, since each call of the device returns it
	strict bool   // rules that the program breaks are Violations too (Device.Strict)

	bufs   map[uint64]*openBuf // destinations of requests under way, by address
	pushes map[uint64]int      // pushes to each buffer, by address
	sends  map[*queuePair]*sendChecks
	recvs  map[*recvQueue]map[uint64][]recvCheck // posted receives by WRID
	tags   map[*tagQueue]*tagChecks
}

// openBuf is a buffer that is a destination of n requests under way.
type openBuf struct {
	length uint64 // of the longest
	n      int
}

func newChecks() *checks {
	c := &checks{bufs: map[uint64]*openBuf{}, pushes: map[uint64]int{}, sends: map[*queuePair]*sendChecks{},
		recvs: map[*recvQueue]map[uint64][]recvCheck{}, tags: map[*tagQueue]*tagChecks{}}
	c.leave = c.guard.Leave
	return c
}

const ownerAdvice = ": a device and all that was made from it have one owner at a time (package verbs): hold one lock around all " +
	"calls, in asynchronous mode the one that Device.Async was given"

// enter begins a call of the device by its owner, and returns the function that ends it.
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
	return d.inv.leave
}

// isStrict reports whether rules that the program breaks are Violations.
func (c *checks) isStrict() bool { return c.strict }

// handing ends the owner's call for the one of a handler, which may call the device, and returns
// the function that begins it again.
func (c *checks) handing() (back func()) {
	c.guard.Leave()
	return func() { c.guard.Enter("poll_cq") }
}

// closing begins Close, which needs no lock of Device.Async, and returns the function that ends it.
func (c *checks) closing() (leave func()) {
	c.guard.Enter("close_device")
	return c.leave
}

// requireHeld panics if the caller does not hold owner. An invariant.Mutex knows its holder; of a
// sync.Mutex it can only be found out that nobody holds it.
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

// opens records that a request may write to the buffers of a list.
func (c *checks) opens(list []sge) {
	for _, s := range list {
		if s.length == 0 {
			continue
		}
		b := c.bufs[s.addr]
		if b == nil {
			b = &openBuf{}
			c.bufs[s.addr] = b
		}
		b.length = max(b.length, s.length)
		b.n++
	}
}

// closes records the end of that request.
func (c *checks) closes(list []sge) {
	for _, s := range list {
		if s.length == 0 {
			continue
		}
		b := c.bufs[s.addr]
		invariant.Check(b != nil, "once", "a buffer of %d bytes is given back that no request under way has", s.length)
		if b.n--; b.n > 0 {
			continue
		}
		delete(c.bufs, s.addr)
		invariant.Check(c.pushes[s.addr] == 0, "V4", "a receive ends while a peer may still write to its buffer")
	}
}

// wants reports whether dst lies in a destination of a request under way that begins at addr.
func (c *checks) wants(addr uint64, dst []byte) bool {
	b := c.bufs[addr]
	return b != nil && holds(addr, b.length, dst)
}

// holds reports whether all of part lies in the memory of that length at addr.
func holds(addr, length uint64, part []byte) bool {
	off := mem.AddrOf(part) - addr // a part before addr wraps to a large number
	return off < length && uint64(len(part)) <= length-off
}

// pushBegins records that a peer is asked to push to the buffer at that address.
func (c *checks) pushBegins(at uint64) { c.pushes[at]++ }

// pushEnds records that it does not push there any more.
func (c *checks) pushEnds(at uint64) {
	if c.pushes[at]--; c.pushes[at] == 0 {
		delete(c.pushes, at)
	}
}

// writes checks that the device may write to dst, a part of one of the entries of some request.
func (d *Device) writes(list []sge, dst []byte) {
	for _, s := range list {
		if !holds(s.addr, s.length, dst) {
			continue
		}
		invariant.Check(d.inv.wants(s.addr, dst), "V4",
			"%d bytes of a buffer are written to that is no request's, or whose request has ended", len(dst))
		invariant.Check(d.regions.Covers(s.lkey, dst, verbs.AccessLocalWrite), "V4",
			"%d bytes are written to through region %#x, which is not registered, does not hold them or is read-only", len(dst), s.lkey)
		return
	}
	invariant.Check(len(dst) == 0, "V4", "%d bytes are written to that are none of the request's", len(dst))
}

// Places implements wire.PlaceChecker.
func (w *fromWire) Places(dst []byte) {
	d := (*Device)(w)
	for addr := range d.inv.bufs {
		if d.inv.wants(addr, dst) {
			return
		}
	}
	invariant.Check(len(dst) == 0, "V4", "a wire puts %d bytes where no request wants them any more", len(dst))
}

// peerWrites checks that a peer's write may change dst, a part of region rkey.
func (d *Device) peerWrites(rkey uint32, dst []byte, need verbs.AccessFlags) {
	invariant.Check(len(dst) == 0 || d.regions.Covers(rkey, dst, need), "V4",
		"a peer changes %d bytes through region %#x, which is not registered, does not hold them or does not allow it", len(dst), rkey)
}
