//go:build linux

package soft

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
)

// watchEvery is how often a device that polls without sleeping looks for peers that are gone.
const watchEvery = int64(100 * time.Millisecond)

// shmWatch finds out about peers that are gone: an epoll of their sockets and pidfds, which is in
// the notifier as well.
type shmWatch struct {
	notif  *epollNotifier
	epfd   int
	last   int64
	links  map[int32]*shmLink // by socket and by pidfd
	events [16]unix.EpollEvent
}

func newSHMWatch(n *epollNotifier) (*shmWatch, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := n.add(epfd, unix.EPOLLIN); err != nil {
		_ = unix.Close(epfd)
		return nil, err
	}
	return &shmWatch{notif: n, epfd: epfd, links: map[int32]*shmLink{}}, nil
}

func (s *shmWatch) close() {
	_ = s.notif.del(s.epfd)
	_ = unix.Close(s.epfd)
}

func (s *shmWatch) add(l *shmLink) error {
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

func (s *shmWatch) remove(p *shmPeer) {
	if !p.watched {
		return
	}
	p.watched = false
	for _, fd := range []int{p.sock, p.pidfd} {
		_ = unix.EpollCtl(s.epfd, unix.EPOLL_CTL_DEL, fd, nil)
		delete(s.links, int32(fd))
	}
}

// due says that it is time to look.
func (s *shmWatch) due() bool { return monotonic()-s.last >= watchEvery }

// look calls lost for links whose peers are gone.
func (s *shmWatch) look(lost func(*shmLink, error)) {
	s.last = monotonic()
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

// fate says what has become of the peer: nil when nothing has.
func (p *shmPeer) fate() error {
	var b [16]byte
	n, err := unix.Read(p.sock, b[:])
	switch {
	case n == 1 && b[0] == shmBye:
		return fmt.Errorf("the peer has closed it: %w", verbs.ErrPeerClosed)
	case n == 1 && b[0] == shmViolated:
		return errors.New("the peer has broken it off, because of a protocol violation by this process")
	case n > 0:
		return fmt.Errorf("protocol violation: %d unexpected bytes on the socket", n)
	case n == 0 || err == unix.ECONNRESET:
		return errPeerEnded
	}
	if p.ended() {
		return errPeerEnded
	}
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		return os.NewSyscallError("read", err)
	}
	return nil
}
