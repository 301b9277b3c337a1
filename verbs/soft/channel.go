package soft

import (
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// compChannel is the device's completion channel. It has one, since there is one notifier that all
// wires wake.
type compChannel struct {
	d      *Device
	users  int // CQs
	closed atomic.Bool
}

// CreateCompChannel makes the completion channel; a device has one at a time.
func (d *Device) CreateCompChannel() (verbs.CompChannel, error) {
	if invariant.Enabled {
		defer d.enter("create_comp_channel")()
	}
	if d.channel != nil {
		return nil, fail("create_comp_channel", syscall.ENOSPC, "a software device has one completion channel: share it between CQs")
	}
	d.channel = &compChannel{d: d}
	d.users++
	return d.channel, nil
}

// Wait blocks until something may have happened. See package verbs.
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

// Wake ends the current or the next Wait.
func (c *compChannel) Wake() { c.d.sleeper().Wake() }

// Close ends the channel and a Wait under way.
func (c *compChannel) Close() error {
	if invariant.Enabled {
		defer c.d.enter("destroy_comp_channel")()
	}
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
