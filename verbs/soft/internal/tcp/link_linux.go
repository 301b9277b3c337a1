package tcp

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// link is a connection to a peer device, or one that is still to be made. Its descriptor belongs
// to the wire's owner alone and is in no netpoller, so that nobody else can close it or wait for
// it.
type link struct {
	w      *Wire
	peer   *wire.Address
	fd     int    // -1: none
	asked  bool   // the connector has been told to connect
	up     bool   // packets can be sent
	gone   bool   // closed, or reported as down
	lost   error  // sending failed; what has come in is still being received
	events uint32 // events that the wire's epoll looks for

	hot     bool   // read at each poll
	queued  bool   // on the wire's backlog
	seen    uint32 // poll at which something came last
	visited uint32 // poll at which it was last received from

	heard  uint32 // segments that had come when the wire looked last
	silent int    // looks since one has, while something was to be acknowledged

	out output
	in  input
	vec vector
}

func (l *link) MaxPayload() int           { return maxPayload }
func (l *link) MaxReadPayload() int       { return maxRead }
func (l *link) Memory() wire.RemoteMemory { return nil }

// attach gives the link its connection.
func (l *link) attach(s *socket) error {
	l.asked = true
	l.events = unix.EPOLLIN | unix.EPOLLRDHUP
	if err := unix.EpollCtl(l.w.ep, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: l.events, Fd: int32(s.fd)}); err != nil {
		_ = s.Close()
		return os.NewSyscallError("epoll_ctl", err)
	}
	l.fd, l.up = s.fd, true
	return nil
}

// watch tells the wire's epoll what the link waits for: room when output is blocked, and input
// unless the device refuses what is here already, which more input does not change. The peer's end
// is always seen.
func (l *link) watch() {
	want := uint32(unix.EPOLLRDHUP)
	if !l.in.stalled || !l.w.armed {
		want |= unix.EPOLLIN
	}
	if l.out.blocked {
		want |= unix.EPOLLOUT
	}
	if want == l.events || l.fd < 0 || l.gone {
		return
	}
	l.events = want
	// It fails only when the descriptor is not there, and it is.
	_ = unix.EpollCtl(l.w.ep, unix.EPOLL_CTL_MOD, l.fd, &unix.EpollEvent{Events: want, Fd: int32(l.fd)})
}

// visit has each poll look at the link although its socket may have nothing new.
func (l *link) visit() {
	if !l.queued {
		l.queued = true
		l.w.backlog = append(l.w.backlog, l)
	}
}

// fail ends the link and reports it. Only from inside poll.
func (l *link) fail(err error) {
	if l.gone {
		return
	}
	l.drop()
	l.w.env.Receiver.LinkDown(l, fmt.Errorf("tcp: connection to %v is gone: %w", l.peer, err))
}

// Close ends the link without a report.
func (l *link) Close() {
	if l.gone {
		return
	}
	if l.up && l.out.pending() > 0 {
		l.write()
	}
	l.drop()
}

// drop forgets the link; lists that it is on find that out later.
func (l *link) drop() {
	l.gone, l.up = true, false
	w := l.w
	if w.links[l.peer.ID] == l {
		delete(w.links, l.peer.ID)
	}
	if l.fd < 0 {
		return
	}
	delete(w.byFD, int32(l.fd))
	w.blocked = remove(w.blocked, l)
	// Bytes that are here and unread would make the kernel reset the connection, and what we sent
	// last might be lost.
	for {
		if n, e := rawRecv(l.fd, w.trash[:]); e != 0 || n < len(w.trash) {
			break
		}
	}
	_ = unix.Shutdown(l.fd, unix.SHUT_RDWR)
	_ = unix.Close(l.fd)
	l.fd = -1
	w.conn.Forget(l.peer.ID)
}
