package ibverbs

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// compQueue is a completion queue.
type compQueue struct {
	d       *device
	obj     uintptr // struct ibv_cq; 0: it is gone
	channel *channel
	users   int      // queue pairs, each counts twice where it sends and receives here
	left    []abi.WC // polled before a Stop, and not handed over
	stop    bool     // the handler has called Stop
	fault   error    // of a completion; the queue is unusable
	overrun atomic.Bool
	wc      verbs.WC // handed to the handler
	notify  ccall.Call
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
	if attr.WCFlags != 0 {
		return nil, fail(op, syscall.EOPNOTSUPP, "this device has no tag information in completions")
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
	if c.obj, err = d.created(object(op, d.lib.createCQ, d.ctx, uintptr(attr.CQE), 0, ch, 0)); err != nil {
		return nil, d.named(err, fmt.Sprintf("a queue of %d completions", attr.CQE))
	}
	if c.channel != nil {
		c.channel.users++
	}
	d.async.watch(c.obj, &c.overrun)
	c.notify = ccall.Call{Fn: d.context().Ops.ReqNotifyCQ, Args: [6]uintptr{c.obj}}
	return c, nil
}

// Drain polls up to 32 completions in one crossing. Fewer than were asked for: there are no more.
func (c *compQueue) Drain(h verbs.Handler, most int) (int, error) {
	if c.obj == 0 {
		return 0, fail("poll_cq", syscall.EINVAL, "the completion queue is destroyed")
	}
	if err := c.d.lines.progress(); err != nil {
		return 0, err
	}
	c.stop = false
	n := 0
	for n < most && !c.stop && c.fault == nil {
		if len(c.left) > 0 {
			k := c.hand(h, c.left[:min(len(c.left), most-n)])
			n, c.left = n+k, slices.Delete(c.left, 0, k)
			continue
		}
		asked := min(batch, most-n)
		got, err := c.poll(asked)
		if err != nil {
			return n, err
		}
		k := c.hand(h, got)
		n += k
		c.left = append(c.left, got[k:]...)
		if len(got) < asked {
			break
		}
	}
	return n, c.fault
}

// poll takes completions, which are valid until the next poll.
func (c *compQueue) poll(most int) ([]abi.WC, error) {
	if c.overrun.Load() {
		return nil, errOverrun
	}
	p := &c.d.poll
	p.Args[0], p.Args[1] = c.obj, uintptr(most)
	p.Do()
	n := int32(p.Ret)
	if n < 0 {
		return nil, errOverrun
	}
	return c.d.mem.completions[:n], nil
}

var errOverrun = fail("poll_cq", syscall.EOVERFLOW, "more completions have come than the queue holds, or the device has failed")

// hand hands completions over until the handler stops, and returns how many. One of a kind that
// libibverbs does not know ends the queue.
func (c *compQueue) hand(h verbs.Handler, got []abi.WC) int {
	for i := range got {
		if c.fault = c.translate(&got[i]); c.fault != nil {
			return i
		}
		h.Complete(&c.wc)
		if c.stop {
			return i + 1
		}
	}
	return len(got)
}

// translate fills wc with what is valid: after an error not more than four fields.
func (c *compQueue) translate(w *abi.WC) error {
	c.wc = verbs.WC{WRID: w.WRID, Status: verbs.WCStatus(w.Status), QPNum: w.QPNum, VendorErr: w.VendorErr}
	if w.Status != uint32(verbs.WCSuccess) {
		return nil
	}
	op := verbs.WCOpcode(w.Opcode)
	if op > verbs.WCTSO && op < verbs.WCRecv || op > verbs.WCTMNoTag {
		return fail("poll_cq", syscall.EPROTO, fmt.Sprintf("a completion with the unknown opcode %d", op))
	}
	c.wc.Opcode, c.wc.Flags, c.wc.ByteLen = verbs.WCOpcode(w.Opcode), verbs.WCFlags(w.WCFlags), w.ByteLen
	if c.wc.Flags&verbs.WCFlagWithImm != 0 {
		c.wc.Imm = hostOrder(w.ImmData)
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
	c.left = slices.DeleteFunc(c.left, func(w abi.WC) bool { return w.QPNum == qp })
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
		return fail("req_notify_cq", syscall.Errno(max(errno, -errno)), "")
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
