package soft

import (
	"math"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// compQueue is a completion queue. Drain first hands over what is in the ring and then, if the
// handler takes more, makes a pass of the device, after each packet of which it hands over what the
// packet has completed. A receive of a message of one packet completes in place, with the payload
// where the wire has it, unless the ring has older completions; all others go through the ring.
type compQueue struct {
	d        *Device
	to       verbs.Handler // of the Drain under way
	room     int           // how many more completions it takes; 0: there is no Drain
	stopped  int           // the same when Stop ended it
	aside    int           // room with which nothing completes in place: 0, or any (Habits.NoLending)
	one      verbs.WC      // completes in place, if from is not nil; see inPlace
	from     *recvQueue    // whose oldest receive completes in place
	ring     []cqEntry     // its length is a power of two; it grows up to limit
	head     uint32        // the oldest completion in ring
	tail     uint32        // where the next is put
	limit    uint32        // CQInitAttr.CQE: the most completions in ring
	arm      armState
	overrun  bool // a completion was lost: the queue is unusable
	gone     bool // destroyed
	channel  *compChannel
	users    int  // QPs and SRQs that use it
	wantTags bool // created with WCExWithTMInfo
}

// armState says which completion wakes the channel.
type armState uint8

const (
	disarmed armState = iota
	armedSolicited
	armedAny
)

// cqEntry is a completion in the ring.
type cqEntry struct {
	wc verbs.WC
	frees
}

// frees is what a completion frees when it is polled: slots of a send queue, or of a tag queue, or
// nothing.
type frees struct {
	qp   *queuePair // see queuePair.reclaim; nil: none
	tm   *tagQueue  // see taglist.List.Polled; nil: none
	upto uint32     // of the send queue or the command queue: earlier slots become free
	hnd  uint32     // with tm: handle of the entry concerned
}

func (f *frees) polled(wc *verbs.WC) {
	if f.qp != nil {
		f.qp.reclaim(f.upto)
	} else if f.tm != nil {
		f.tm.list.Polled(wc, f.hnd, f.upto)
	}
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(attr verbs.CQInitAttr) (verbs.CQ, error) {
	defer d.enter("create_cq")()
	d.nic.slow()
	switch {
	case attr.CQE < 1 || attr.CQE > d.attr.MaxCQE:
		return nil, fail("create_cq", syscall.EINVAL, "CQE must be between 1 and the device's MaxCQE")
	case attr.WCFlags&^verbs.WCExWithTMInfo != 0:
		return nil, fail("create_cq", syscall.EOPNOTSUPP, "unknown WCFlags")
	}
	c := &compQueue{d: d, limit: uint32(attr.CQE), ring: make([]cqEntry, min(ringSize(attr.CQE), 64))}
	c.wantTags = attr.WCFlags&verbs.WCExWithTMInfo != 0
	if d.nic != nil && d.nic.NoLending {
		c.aside = math.MaxInt
	}
	if attr.Channel != nil {
		ch, ok := attr.Channel.(*compChannel)
		if !ok || ch.d != d {
			return nil, fail("create_cq", syscall.EINVAL, "the completion channel is of another device")
		}
		c.channel = ch
		ch.users++
	}
	d.users++
	return c, nil
}

// ringSize is the least power of two that is not below n.
func ringSize(n int) int {
	size := 1
	for size < n {
		size <<= 1
	}
	return size
}

// Drain makes progress and hands completions over.
func (c *compQueue) Drain(h verbs.Handler, most int) (int, error) {
	if invariant.Enabled {
		defer c.d.enter("poll_cq")()
	}
	if c.overrun || c.gone {
		return 0, fail("poll_cq", syscall.EIO, "the completion queue was overrun or destroyed")
	}
	c.to, c.room, c.stopped = h, most, 0
	if c.head != c.tail {
		c.handOver()
	}
	if c.room > 0 {
		if c.d.armed && c.d.async != nil {
			c.d.async.polled()
		}
		c.d.draining = c
		c.d.progress(c.room)
		c.d.draining = nil
		if c.head != c.tail {
			c.handOver()
		}
	}
	n := most - c.room - c.stopped
	c.to, c.room = nil, 0
	return n, nil
}

// Stop ends the Drain under way. Packets that wires pass nevertheless are received; their
// completions wait for the next one.
func (c *compQueue) Stop() {
	c.stopped, c.room = c.stopped+c.room, 0
}

// inPlace returns the completion of the oldest receive of rq, or nil if the completion has to go to
// the ring, by push. The caller sets WRID, Opcode, Flags, ByteLen, QPNum, Data and perhaps Imm
// before the packet is done; all else is 0.
func (c *compQueue) inPlace(rq *recvQueue) *verbs.WC {
	if c.room <= c.aside || c.head != c.tail {
		return nil
	}
	c.from = rq
	rq.head++
	return &c.one
}

// due reports that handOver has something to do, once a packet is done.
func (c *compQueue) due() bool { return c.from != nil || c.head != c.tail }

// handOver gives the handler what is complete.
func (c *compQueue) handOver() {
	if rq := c.from; rq != nil {
		c.from = nil
		if c.hand(&c.one) && rq.num != 0 {
			rq.again(&c.one)
		} else {
			rq.checkLimit()
		}
		invariant.PoisonStart(c.one.Data) // it was lent for the call
		c.one.Data, c.one.Imm = nil, 0
	}
	for c.room > 0 && c.head != c.tail {
		e := &c.ring[c.head&uint32(len(c.ring)-1)]
		e.polled(&e.wc)
		e.qp, e.tm = nil, nil
		c.hand(&e.wc)
		c.head++
	}
}

// hand calls the handler, which may call the device.
func (c *compQueue) hand(wc *verbs.WC) (again bool) {
	c.room--
	if invariant.Enabled {
		defer c.d.inv.handing()()
	}
	return c.to.Complete(wc)
}

// push adds a completion, which frees what f says when it is handed over.
func (c *compQueue) push(wc *verbs.WC, f frees, solicited bool) {
	c.checkPushed(wc, f)
	if c.tail-c.head >= c.limit {
		c.fail()
		return
	}
	if c.tail-c.head == uint32(len(c.ring)) {
		c.grow()
	}
	e := &c.ring[c.tail&uint32(len(c.ring)-1)]
	e.wc, e.frees = *wc, f
	c.tail++
	if c.arm == armedAny || c.arm == armedSolicited && (solicited || e.wc.Status != verbs.WCSuccess) {
		c.arm = disarmed
		c.d.sleeper().Wake()
	}
}

// grow doubles the ring, which starts smaller than the capacity that CreateCQ was asked for.
func (c *compQueue) grow() {
	ring := make([]cqEntry, 2*len(c.ring))
	for i := c.head; i != c.tail; i++ {
		ring[i&uint32(len(ring)-1)] = c.ring[i&uint32(len(c.ring)-1)]
	}
	c.ring = ring
}

// forget makes completions of a QP that is reset free none of its slots when they are polled.
func (c *compQueue) forget(q *queuePair) {
	for i := c.head; i != c.tail; i++ {
		if e := &c.ring[i&uint32(len(c.ring)-1)]; e.qp == q {
			e.qp = nil
		}
	}
}

// fail makes the queue unusable, since there was no room for a completion (ibv_poll_cq(3)).
func (c *compQueue) fail() {
	if c.d.inv.isStrict() {
		invariant.Broken("V15", "a transport's completion queue of %d is overrun: it must hold the worst case (TMO 1.4)", c.limit)
	}
	if !c.overrun {
		c.overrun = true
		c.d.event(verbs.AsyncEvent{Type: verbs.EventCQErr,
			Err: fail("poll_cq", syscall.EOVERFLOW, "completion queue overrun: create it with more CQE or poll it more often")})
	}
}

// Arm asks for one event at the next completion. See package verbs for the protocol.
func (c *compQueue) Arm(solicitedOnly bool) error {
	if invariant.Enabled {
		defer c.d.enter("req_notify_cq")()
	}
	if c.channel == nil {
		return fail("req_notify_cq", syscall.EINVAL, "the completion queue has no channel")
	}
	c.arm = armedAny
	if solicitedOnly {
		c.arm = armedSolicited
	}
	if a := c.d.async; a != nil {
		a.programArmed = true
		a.judge.sleeps()
	}
	c.d.armWires(true)
	if c.head != c.tail || c.overrun {
		c.d.sleeper().Wake()
	}
	return nil
}

// Disarm takes back Arm.
func (c *compQueue) Disarm() {
	if invariant.Enabled {
		defer c.d.enter("disarm_cq")()
	}
	c.arm = disarmed
	if a := c.d.async; a != nil {
		a.programArmed = false
	}
	c.d.disarmWires()
}

// Destroy frees the queue; it fails while QPs or SRQs use it.
func (c *compQueue) Destroy() error {
	defer c.d.enter("destroy_cq")()
	switch {
	case c.gone:
		return fail("destroy_cq", syscall.EINVAL, "the completion queue is gone already")
	case c.users > 0:
		return fail("destroy_cq", syscall.EBUSY, "queue pairs or SRQs use the completion queue")
	}
	c.gone = true
	c.d.users--
	if c.channel != nil {
		c.channel.users--
	}
	return nil
}
