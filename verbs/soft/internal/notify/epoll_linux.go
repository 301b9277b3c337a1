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

// Epoll is one epoll instance with an eventfd for wake and whatever descriptors the wires
// add. The epoll descriptor is itself in Go's netpoller, so that a wait parks a goroutine and keeps
// no thread.
//
// Everything in it is level-triggered, and the netpoller, which is edge-triggered, is asked again
// only after the epoll was found empty: nothing can be lost between the two. Whatever is added
// makes every arrival wake the netpoller's thread, which costs several microseconds: wires add (or
// give events to) their descriptors only while they are armed.
type Epoll struct {
	file      *os.File // the epoll descriptor
	raw       syscall.RawConn
	signalled atomic.Bool // the eventfd has been written to since the last wait that took it

	mu     sync.Mutex // keeps the descriptors open while they are used
	closed bool
	epfd   int
	evfd   int

	events [16]unix.EpollEvent // of the wait under way
}

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
	err = n.Add(evfd, unix.EPOLLIN)
	if err == nil {
		// os.NewFile hands only non-blocking descriptors to the netpoller.
		err = os.NewSyscallError("fcntl", unix.SetNonblock(epfd, true))
	}
	if err != nil {
		_ = unix.Close(epfd)
		_ = unix.Close(evfd)
		return nil, err
	}
	n.file = os.NewFile(uintptr(epfd), "epoll")
	if n.raw, err = n.file.SyscallConn(); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Epoll) Wait() error {
	var failed error
	err := n.raw.Read(func(fd uintptr) bool {
		k, err := unix.EpollWait(int(fd), n.events[:], 0)
		if err != nil && err != unix.EINTR {
			failed = os.NewSyscallError("epoll_wait", err)
			return true
		}
		for i := range max(k, 0) {
			if n.events[i].Fd == int32(n.evfd) {
				n.take()
			}
		}
		return k > 0
	})
	if err != nil && n.isClosed() { // the raw connection's own error is of an internal package
		return ErrClosed
	}
	return errors.Join(err, failed)
}

// Ready tells, without waiting, whether a wait would end now.
func (n *Epoll) Ready() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ev [1]unix.EpollEvent
	k, err := unix.EpollWait(n.epfd, ev[:], 0)
	return k > 0 || err != nil
}

func (n *Epoll) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// take empties the eventfd. The flag is cleared after that, never before: a wake between the two
// would leave the flag set with an empty eventfd, and every later wake would be lost. As it is,
// such a wake is skipped, rightly, since the wait that takes is about to return.
func (n *Epoll) take() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		var b [8]byte
		_, _ = unix.Read(n.evfd, b[:]) // EAGAIN: another wake is just about to write, which is one spurious wait more
	}
	n.signalled.Store(false)
}

func (n *Epoll) Wake() {
	// The load keeps repeated wakes from fighting for the cache line.
	if n.signalled.Load() || n.signalled.Swap(true) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], 1)
		_, _ = unix.Write(n.evfd, b[:]) // it cannot be full
	}
}

// Add makes fd's events end waits. The caller dels it before it closes it.
func (n *Epoll) Add(fd int, events uint32) error {
	return n.ctl(unix.EPOLL_CTL_ADD, fd, events)
}

// Mod changes the events of a descriptor that was added; 0 silences it.
func (n *Epoll) Mod(fd int, events uint32) error {
	return n.ctl(unix.EPOLL_CTL_MOD, fd, events)
}

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

// Close ends a wait under way; later waits fail.
func (n *Epoll) Close() error {
	n.mu.Lock()
	closed := n.closed
	n.closed = true
	n.mu.Unlock()
	if closed {
		return nil
	}
	// Not under the lock: the file's Close waits for a wait that may be about to take.
	return errors.Join(n.file.Close(), os.NewSyscallError("close", unix.Close(n.evfd)))
}
