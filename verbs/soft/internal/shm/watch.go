//go:build linux

package shm

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// watchEvery is the interval, in nanoseconds, at which a device that polls without sleeping looks
// for peers that have ended.
const watchEvery = int64(100 * time.Millisecond)

// watch detects peers that have ended, by an epoll of their sockets and pidfds, which is also in
// the notifier.
type watch struct {
	notif  *notify.Epoll
	epfd   int
	last   int64           // of the last look, by wire.Monotonic
	links  map[int32]*link // by socket and by pidfd
	events [16]unix.EpollEvent
}

func newWatch(n *notify.Epoll) (*watch, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := n.Add(epfd, unix.EPOLLIN); err != nil {
		_ = unix.Close(epfd)
		return nil, err
	}
	return &watch{notif: n, epfd: epfd, links: map[int32]*link{}}, nil
}

func (s *watch) close() {
	_ = s.notif.Del(s.epfd)
	_ = unix.Close(s.epfd)
}

func (s *watch) add(l *link) error {
	l.peer.watched = true
	for _, fd := range []int{l.peer.sock, l.peer.pidfd} {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(fd)}
		if err := unix.EpollCtl(s.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
		s.links[int32(fd)] = l
	}
	return nil
}

func (s *watch) remove(p *remote) {
	if !p.watched {
		return
	}
	p.watched = false
	for _, fd := range []int{p.sock, p.pidfd} {
		_ = unix.EpollCtl(s.epfd, unix.EPOLL_CTL_DEL, fd, nil)
		delete(s.links, int32(fd))
	}
}

// due reports whether watchEvery has passed since the last look.
func (s *watch) due() bool { return wire.Monotonic()-s.last >= watchEvery }

// look calls lost for links whose peers have ended.
func (s *watch) look(lost func(*link, error)) {
	s.last = wire.Monotonic()
	n, _ := unix.EpollWait(s.epfd, s.events[:], 0)
	for i := range max(n, 0) {
		l := s.links[s.events[i].Fd]
		if l == nil {
			continue
		}
		if err := l.peer.fate(); err != nil {
			s.remove(l.peer)
			lost(l, err)
		}
	}
}

// fate returns how the peer has ended the connection, or nil if it has not.
func (p *remote) fate() error {
	var b [16]byte
	n, err := unix.Read(p.sock, b[:])
	switch {
	case n == 1 && b[0] == bye:
		return fmt.Errorf("the peer has closed it: %w", verbs.ErrPeerClosed)
	case n == 1 && b[0] == violated:
		return verbs.ErrAccused
	case n == 1 && b[0] == exhausted:
		return fmt.Errorf("the peer has broken it off, for lack of memory: %w", unix.ENOMEM)
	case n > 0:
		return fmt.Errorf("%w: %d unexpected bytes on the socket", verbs.ErrProtocol, n)
	case n == 0 || err == unix.ECONNRESET:
		return verbs.ErrPeerEnded
	}
	if p.ended() {
		return verbs.ErrPeerEnded
	}
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		return os.NewSyscallError("read", err)
	}
	return nil
}
