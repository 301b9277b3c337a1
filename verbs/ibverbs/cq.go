package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// compQueue is a completion queue.
type compQueue struct {
	d         *device
	obj       uintptr // struct ibv_cq; 0: it is gone
	channel   *channel
	users     int        // queue pairs, each counts twice where it sends and receives here; and SRQs
	left      []verbs.WC // polled before a Stop, and not handed over
	stop      bool       // the handler has called Stop
	fault     error      // why the queue is unusable
	overrun   atomic.Bool
	wc        verbs.WC   // handed to the handler
	take      ccall.Call // poll_cq, and req_notify_cq
	notify    ccall.Call
	*extended // nil: no tag information
}

// CreateCQ makes a completion queue.
func (d *device) CreateCQ(attr verbs.CQInitAttr) (verbs.CQ, error) {
	const op = "create_cq"
	if d.closed {
		return nil, errClosed(op)
	}
	if attr.CQE < 1 || attr.CQE > d.attr.MaxCQE {
		return nil, fail(op, syscall.EINVAL, fmt.Sprintf("CQE is %d: use 1 to %d", attr.CQE, d.attr.MaxCQE))
	}
	tags := attr.WCFlags == verbs.WCExWithTMInfo
	switch {
	case tags && !d.tags():
		return nil, d.errNoTags(op)
	case attr.WCFlags != 0 && !tags:
		return nil, fail(op, syscall.EOPNOTSUPP, "WCFlags may have WCExWithTMInfo alone")
	}
	c := &compQueue{d: d}
	var ch uintptr
	if attr.Channel != nil {
		var ok bool
		if c.channel, ok = attr.Channel.(*channel); !ok || c.channel.d != d || c.channel.obj == 0 {
			return nil, fail(op, syscall.EINVAL, "Channel must be a live one of this device")
		}
		ch = c.channel.obj
	}
	var err error
	if tags {
		c.obj, err = d.created(d.createCQEx(attr.CQE, ch))
	} else {
		c.obj, err = d.created(object(op, d.lib.createCQ, d.ctx, uintptr(attr.CQE), 0, ch, 0))
		err = d.named(err, fmt.Sprintf("a queue of %d completions", attr.CQE))
	}
	if err != nil {
		return nil, err
	}
	if tags {
		c.extended = newExtended(d.mem, c.obj)
	}
	if c.channel != nil {
		c.channel.users++
	}
	d.async.watch(c.obj, &c.overrun)
	ops := &d.context().Ops
	c.take = ccall.Call{Fn: ops.PollCQ, Args: [6]uintptr{c.obj, 0, addr(&d.mem.completions[0])}}
	c.notify = ccall.Call{Fn: ops.ReqNotifyCQ, Args: [6]uintptr{c.obj}}
	return c, nil
}

// Drain polls up to 32 completions in one crossing. Fewer than were asked for: there are no more.
// It keeps what comes behind a Stop. A completion that libibverbs does not know ends the queue, as
// a poll that fails does.
func (c *compQueue) Drain(h verbs.Handler, most int) (int, error) {
	if c.obj == 0 {
		return 0, fail("poll_cq", syscall.EINVAL, "the completion queue is destroyed")
	}
	if c.d.lines.ready.Load() {
		if err := c.d.lines.poll(); err != nil {
			return 0, err
		}
	}
	c.stop = false
	n := 0
	if len(c.left) > 0 {
		n = c.handLeft(h, most)
	}
	for n < most && !c.stop && c.fault == nil {
		asked := min(batch, most-n)
		got := c.poll(asked)
		for i := range got {
			if err := c.translate(i); err != nil {
				c.fault = errors.Join(err, c.fault)
				break
			}
			if c.stop {
				c.left = append(c.left, c.wc)
				continue
			}
			h.Complete(&c.wc)
			n++
		}
		if got < asked {
			break
		}
	}
	return n, c.fault
}

// handLeft hands over what was polled before a Stop.
func (c *compQueue) handLeft(h verbs.Handler, most int) (n int) {
	for ; n < min(len(c.left), most) && !c.stop; n++ {
		c.wc = c.left[n]
		h.Complete(&c.wc)
	}
	c.left = slices.Delete(c.left, 0, n)
	return n
}

// poll polls completions into the device's memory, where they are valid until the next poll, and
// returns how many. A fault may come with some.
func (c *compQueue) poll(most int) (n int) {
	switch {
	case c.overrun.Load():
		c.fault = c.d.errOverrun()
		return 0
	case c.extended != nil:
		n, c.fault = c.extended.poll(c.d.port, most)
		return n
	}
	c.take.Args[1] = uintptr(most)
	c.take.Do()
	if n = int(int32(c.take.Ret)); n < 0 {
		c.fault = c.d.errOverrun()
		return 0
	}
	return n
}

func (p *port) errOverrun() error {
	return p.named(fail("poll_cq", syscall.EOVERFLOW, "more completions have come than the queue holds, or the device has failed"), "")
}

// translate fills wc with what is valid of completion i: after an error not more than four fields,
// and tag and priv beside a match alone. Of a rendezvous that is left to software all is valid but
// the opcode, which mlx5 has not for each. The flag GRH says something about UD alone
// (ibv_poll_cq(3)). It sets field by field, as fill does; Data stays nil.
func (c *compQueue) translate(i int) error {
	wc, w := &c.wc, &c.d.mem.completions[i]
	status, op, flags := verbs.WCStatus(w.Status), verbs.WCOpcode(w.Opcode), verbs.WCFlags(w.WCFlags)&^verbs.WCFlagGRH
	wc.WRID, wc.Status, wc.QPNum, wc.VendorErr, wc.Imm, wc.Priv, wc.Tag = w.WRID, status, w.QPNum, w.VendorErr, 0, 0, 0
	switch {
	case status == verbs.WCTMRndvIncomplete:
		op = verbs.WCTMRecv
	case status != verbs.WCSuccess:
		wc.Opcode, wc.Flags, wc.ByteLen = 0, 0, 0
		return nil
	case op > verbs.WCTSO && op < verbs.WCRecv || op > verbs.WCTMNoTag:
		return fail("poll_cq", syscall.EPROTO, fmt.Sprintf("a completion with the unknown opcode %d", op))
	}
	wc.Opcode, wc.Flags, wc.ByteLen = op, flags, w.ByteLen
	if flags&verbs.WCFlagTMMatch != 0 {
		tm := &c.d.mem.tm[i]
		wc.Tag, wc.Priv = tm.Tag, tm.Priv
	}
	if flags&verbs.WCFlagWithImm != 0 {
		wc.Imm = hostOrder(w.ImmData)
	}
	return nil
}

// hostOrder turns a big-endian word into one of this machine, or back.
func hostOrder(v uint32) uint32 {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return bits.ReverseBytes32(v)
	}
	return v
}

// forget drops what was polled of a queue pair that is gone.
func (c *compQueue) forget(qp uint32) {
	c.left = slices.DeleteFunc(c.left, func(w verbs.WC) bool { return w.QPNum == qp })
}

// Stop is heeded after the completion that is handled.
func (c *compQueue) Stop() { c.stop = true }

// Arm asks for an event.
func (c *compQueue) Arm(solicitedOnly bool) error {
	switch {
	case c.obj == 0:
		return fail("req_notify_cq", syscall.EINVAL, "the completion queue is destroyed")
	case c.channel == nil:
		return fail("req_notify_cq", syscall.EINVAL, "the completion queue has no channel")
	}
	c.notify.Args[1] = 0
	if solicitedOnly {
		c.notify.Args[1] = 1
	}
	c.notify.Do()
	if errno := int32(c.notify.Ret); errno != 0 {
		return c.d.named(fail("req_notify_cq", syscall.Errno(max(errno, -errno)), ""), "")
	}
	return nil
}

// Disarm does nothing: the event that may come ends a Wait too early.
func (c *compQueue) Disarm() {}

// Destroy waits until each event of the CQ was acknowledged, which CompChannel.Wait does at once.
func (c *compQueue) Destroy() error {
	if c.users > 0 {
		return fail("destroy_cq", syscall.EBUSY, "queue pairs use it")
	}
	obj := c.obj
	if err := c.d.destroy("destroy_cq", c.d.lib.destroyCQ, &c.obj); err != nil {
		return err
	}
	c.d.async.watch(obj, nil)
	if c.channel != nil {
		c.channel.users--
	}
	return nil
}
