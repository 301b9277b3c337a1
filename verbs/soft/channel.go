package soft

import (
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// compChannel is the completion channel of a device. A device has only one, since all its wires
// wake the same notifier.
type compChannel struct {
	d      *Device
	users  int         // CQs that use it
	closed atomic.Bool // the channel or the device; Wait may run on another goroutine
}

// CreateCompChannel makes the completion channel; a device has one at a time.
func (d *Device) CreateCompChannel() (verbs.CompChannel, error) {
	defer d.enter("create_comp_channel")()
	if d.channel != nil {
		return nil, fail("create_comp_channel", syscall.ENOSPC, "a software device has one completion channel: share it between CQs")
	}
	d.channel = &compChannel{d: d}
	d.users++
	return d.channel, nil
}

// Wait blocks until an armed CQ may have an event; see package verbs. Any goroutine may call it,
// one at a time.
func (c *compChannel) Wait() error {
	if !c.closed.Load() {
		if err := c.d.sleeper().Wait(); err != nil {
			return fail("get_cq_event", syscall.EBADF, err.Error())
		}
	}
	if c.closed.Load() {
		return fail("get_cq_event", syscall.EBADF, "the completion channel was closed")
	}
	return nil
}

// Wake ends the Wait under way, or the next one. Any goroutine may call it.
func (c *compChannel) Wake() { c.d.sleeper().Wake() }

// Close frees the channel and ends a Wait under way; it fails while CQs use the channel.
func (c *compChannel) Close() error {
	defer c.d.enter("destroy_comp_channel")()
	if c.users > 0 {
		return fail("destroy_comp_channel", syscall.EBUSY, "completion queues use the channel")
	}
	if c.closed.Swap(true) {
		return fail("destroy_comp_channel", syscall.EINVAL, "the completion channel is closed already")
	}
	c.d.channel = nil
	c.d.users--
	c.d.sleeper().Wake()
	return nil
}
