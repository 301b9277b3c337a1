package notify

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Epoll is a notifier that descriptors can be added to: an epoll instance, and an eventfd for Wake.
// From the first Wait on the epoll descriptor is itself in Go's netpoller, so that Wait parks a
// goroutine and blocks no thread.
//
// The epoll is level-triggered. The netpoller is edge-triggered, but waits again only after
// epoll_wait has found nothing, so that no event is lost between the two. Each event of a
// descriptor that was added wakes the netpoller's thread, which costs several microseconds: wires
// therefore enable the events of their descriptors only while they are armed.
type Epoll struct {
	signalled atomic.Bool // the eventfd was written to, and no Wait has read it since

	mu     sync.Mutex // keeps epfd and evfd open while they are used
	closed bool
	epfd   int
	evfd   int
	file   *os.File        // owns epfd once it is in the netpoller; nil before
	raw    syscall.RawConn // of file

	events [16]unix.EpollEvent // of the Wait under way
}

// NewEpoll makes a notifier with two descriptors.
func NewEpoll() (*Epoll, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	evfd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epfd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	n := &Epoll{epfd: epfd, evfd: evfd}
	if err := n.Add(evfd, unix.EPOLLIN); err != nil {
		_ = unix.Close(epfd)
		_ = unix.Close(evfd)
		return nil, err
	}
	return n, nil
}

// Wait blocks until Wake is called or a descriptor that was added has an event.
func (n *Epoll) Wait() error {
	raw, err := n.pollable()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) (over bool) {
		over, failed = n.poll(int(fd))
		return over || failed != nil
	})
	if err != nil && n.isClosed() { // err itself is of a package that cannot be imported
		return ErrClosed
	}
	return errors.Join(err, failed)
}

// poll reports whether there was an event. It does not wait.
func (n *Epoll) poll(fd int) (over bool, err error) {
	k, err := unix.EpollWait(fd, n.events[:], 0)
	if err != nil && err != unix.EINTR {
		return false, os.NewSyscallError("epoll_wait", err)
	}
	for i := range max(k, 0) {
		if n.events[i].Fd == int32(n.evfd) {
			n.take()
		}
	}
	return k > 0, nil
}

// pollable puts the epoll descriptor into the netpoller, once.
func (n *Epoll) pollable() (syscall.RawConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	if n.file != nil {
		return n.raw, nil
	}
	// os.NewFile hands only non-blocking descriptors to the netpoller.
	if err := unix.SetNonblock(n.epfd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	n.file = os.NewFile(uintptr(n.epfd), "epoll")
	n.raw, _ = n.file.SyscallConn() // fails only for a nil file
	return n.raw, nil
}

func (n *Epoll) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// take empties the eventfd and then clears the flag, in this order: a Wake between a clearing and a
// later read would leave the flag set and the eventfd empty, and all later Wakes would do nothing.
// A Wake between the two steps in this order does nothing either, which is right, since this Wait
// is about to return.
func (n *Epoll) take() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		var b [8]byte
		_, _ = unix.Read(n.evfd, b[:]) // EAGAIN: a Wake is about to write, and the next Wait ends early
	}
	n.signalled.Store(false)
}

// Wake ends the Wait under way, or the next one.
func (n *Epoll) Wake() {
	// The load lets repeated Wakes share the cache line.
	if n.signalled.Load() || n.signalled.Swap(true) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], 1)
		_, _ = unix.Write(n.evfd, b[:]) // the counter cannot overflow
	}
}

// Add makes events of fd end Waits. The caller calls Del before it closes fd.
func (n *Epoll) Add(fd int, events uint32) error {
	return n.ctl(unix.EPOLL_CTL_ADD, fd, events)
}

// Mod changes the events of a descriptor that was added; 0: none.
func (n *Epoll) Mod(fd int, events uint32) error {
	return n.ctl(unix.EPOLL_CTL_MOD, fd, events)
}

// Del takes back Add.
func (n *Epoll) Del(fd int) error {
	return n.ctl(unix.EPOLL_CTL_DEL, fd, 0)
}

func (n *Epoll) ctl(op, fd int, events uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(n.epfd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// Close ends the Wait under way and all later ones with ErrClosed.
func (n *Epoll) Close() error {
	n.mu.Lock()
	closed := n.closed
	n.closed = true
	n.mu.Unlock()
	if closed {
		return nil
	}
	// Not under the lock: file.Close waits for a Wait, which may be in take.
	closeEpoll := func() error { return os.NewSyscallError("close", unix.Close(n.epfd)) }
	if n.file != nil {
		closeEpoll = n.file.Close
	}
	return errors.Join(closeEpoll(), os.NewSyscallError("close", unix.Close(n.evfd)))
}
