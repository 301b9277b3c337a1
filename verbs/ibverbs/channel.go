package ibverbs

import (
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// channel is a completion channel. Waiting is in the runtime's poller, on a duplicate of the
// channel's descriptor: both are of one open file, so that both do not block.
type channel struct {
	d     *device
	obj   uintptr // struct ibv_comp_channel
	file  *os.File
	slot  *channelSlot
	woken atomic.Bool
	users int // CQs
}

// CreateCompChannel makes a channel, of which a device has 32 at most.
func (d *device) CreateCompChannel() (verbs.CompChannel, error) {
	const op = "create_comp_channel"
	if d.closed {
		return nil, errClosed(op)
	}
	if len(d.free) == 0 {
		return nil, fail(op, syscall.ENOMEM, "the device has 32 channels")
	}
	obj, err := d.created(object(op, d.lib.createCompChannel, d.ctx))
	if err != nil {
		return nil, d.named(err, "")
	}
	file, err := pollable(at[abi.CompChannel](obj).FD, "completion channel")
	if err != nil {
		return nil, errors.Join(d.named(fail(op, errnoOf(err), "its descriptor"), ""), d.destroyed(status("destroy_comp_channel", d.lib.destroyCompChannel, obj)))
	}
	c := &channel{d: d, obj: obj, file: file, slot: d.free[len(d.free)-1]}
	d.free = d.free[:len(d.free)-1]
	d.mu.Lock()
	d.channels = append(d.channels, c)
	d.mu.Unlock()
	return c, nil
}

// Wait takes the events that there are, and acknowledges them: who destroys a CQ waits for that.
func (c *channel) Wait() error {
	if c.woken.Swap(false) {
		return nil
	}
	err := whenReadable("get_cq_event", c.file, c.take)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// A Wake from here on either finds the deadline gone, and sets it again, or is consumed.
		if err = c.file.SetReadDeadline(time.Time{}); err == nil {
			c.woken.Store(false)
		}
	}
	return c.d.named(err, "")
}

// take takes the events that there are: EAGAIN where there are none.
func (c *channel) take() syscall.Errno {
	taken, last := uintptr(0), uintptr(0)
	ack := func() {
		if taken > 0 {
			_, _ = call(c.d.lib.ackCQEvents, last, taken)
		}
	}
	for {
		ret, errno := call(c.d.lib.getCQEvent, c.obj, addr(&c.slot.cq), addr(&c.slot.context))
		if int32(ret) != 0 {
			ack()
			if taken > 0 {
				return 0
			}
			return errno
		}
		if c.slot.cq != last {
			ack()
			taken, last = 0, c.slot.cq
		}
		taken++
	}
}

// Wake sets a deadline that has passed.
func (c *channel) Wake() {
	c.woken.Store(true)
	_ = c.file.SetReadDeadline(time.Unix(1, 0)) // it fails once the channel is closed
}

// Close ends a running Wait.
func (c *channel) Close() error {
	const op = "destroy_comp_channel"
	switch {
	case c.users > 0:
		return fail(op, syscall.EBUSY, "completion queues use the channel")
	case c.obj == 0:
		return fail(op, syscall.EINVAL, "it is closed already")
	}
	c.d.mu.Lock()
	c.d.channels = slices.DeleteFunc(c.d.channels, func(o *channel) bool { return o == c })
	c.d.mu.Unlock()
	err := errors.Join(c.file.Close(), // which ends the Wait, and returns after that
		c.d.destroy(op, c.d.lib.destroyCompChannel, &c.obj))
	c.d.free = append(c.d.free, c.slot)
	return err
}

// pollable returns a file for the runtime's poller, of a duplicate of a descriptor.
func pollable(fd int32, name string) (*os.File, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		return nil, errors.Join(err, unix.Close(dup))
	}
	return os.NewFile(uintptr(dup), name), nil
}

// whenReadable calls f until it returns something else than EAGAIN, each time that the file may be
// readable. It returns an error once the file is closed (os.ErrClosed), its deadline has passed
// (os.ErrDeadlineExceeded), or f has failed.
func whenReadable(op string, file *os.File, f func() syscall.Errno) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := raw.Read(func(uintptr) bool { errno = f(); return errno != syscall.EAGAIN }); errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	} else if err != nil {
		return os.ErrClosed // the runtime's own error has no name
	}
	if errno != 0 {
		return fail(op, errno, "")
	}
	return nil
}
