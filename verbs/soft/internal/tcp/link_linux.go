package tcp

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// link is the link to one peer, used by the device's owner alone. Its descriptor is not in the
// netpoller, so that no other goroutine can close it or wait for it.
type link struct {
	w      *Wire
	peer   *wire.Address
	fd     int    // the connected socket; -1: none
	asked  bool   // the Connector was asked to connect, or has connected
	up     bool   // packets can be sent
	gone   bool   // closed, or reported as down
	lost   error  // why sending has failed; what has arrived will still be received; nil: it has not
	events uint32 // epoll events that are enabled for fd; 0: it is not in Wire.ep, see leave

	hot     bool   // in Wire.hot
	queued  bool   // in Wire.backlog
	seen    uint32 // Wire.round when something arrived last
	visited uint32 // Wire.round when it was received from last
	news    uint32 // polls that have found packets since it was put into Wire.ep

	heard  uint32 // see lookForSilent: TCP segments received until the last look
	acked  uint64 // bytes acknowledged until then
	silent int    // looks in a row without a sign of life

	out    output
	in     input
	vec    vector
	sealed *sealed // nil: the connection is plain, or there is none yet
}

func (l *link) Peer() *wire.Address       { return l.peer }
func (l *link) MaxPayload() int           { return maxPayload }
func (l *link) Memory() wire.RemoteMemory { return nil }

// MaxReadPayload implements wire.Link. What is sealed should stay in the cache until it is sent.
func (l *link) MaxReadPayload() int {
	if l.w.env.TLS != nil {
		return maxPayload
	}
	return maxRead
}

// attach gives the link its connection, whose descriptor it then owns.
func (l *link) attach(s *socket) error {
	l.asked = true
	l.events = unix.EPOLLIN | unix.EPOLLRDHUP
	// In place of this limit, which would end a link whose peer does not read, there is look.
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0)
	if err := unix.EpollCtl(l.w.ep, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: l.events, Fd: int32(s.fd)}); err != nil {
		_ = s.Close()
		return os.NewSyscallError("epoll_ctl", err)
	}
	l.fd, l.sealed, l.up = s.fd, s.sealed, true
	return nil
}

// watch enables those events of the socket that the link waits for: room if output is blocked,
// input unless the device refuses a packet that is here already, and always the end of the
// connection.
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
	op := unix.EPOLL_CTL_MOD // fails only for a descriptor that is not in the epoll
	if l.events == 0 {
		op, l.news = unix.EPOLL_CTL_ADD, 0
	}
	if err := unix.EpollCtl(l.w.ep, op, l.fd, &unix.EpollEvent{Events: want, Fd: int32(l.fd)}); err != nil {
		l.w.notif.Wake() // there is no memory to add it: nobody must sleep, as nothing would wake them
		return
	}
	l.events = want
}

// leave takes the socket of a hot link out of the epoll: while each poll reads from it, the kernel
// need not tell the epoll, and through it the notifier, of each packet. watch puts it back.
func (l *link) leave() {
	if l.hot && !l.w.armed && !l.in.stalled && l.events != 0 && unix.EpollCtl(l.w.ep, unix.EPOLL_CTL_DEL, l.fd, nil) == nil {
		l.events = 0
	}
}

// visit puts the link on the backlog: the next poll receives from it, although its socket may not
// be ready, since packets are in its buffer or the end of the connection is to be found.
func (l *link) visit() {
	if !l.queued {
		l.queued = true
		l.w.backlog = append(l.w.backlog, l)
	}
}

// fail ends the link and reports that. Only inside Poll.
func (l *link) fail(err error) {
	if l.gone {
		return
	}
	l.drop()
	l.w.env.Receiver.LinkDown(l, fmt.Errorf("tcp: connection to %v is gone: %w", l.peer, err))
}

// Close ends the link without reporting it.
func (l *link) Close() {
	if !l.gone {
		l.sayWhy(opClosed)
		l.drop()
	}
}

// Accuse implements wire.Link.
func (l *link) Accuse() {
	if !l.gone {
		l.sayWhy(opAccused)
		l.drop()
	}
}

// sayWhy sends the last frame, which says why the link ends, if the socket takes it. Without one
// the peer takes it that this process has ended.
func (l *link) sayWhy(op wire.Opcode) {
	if l.up && l.Send(&wire.Header{Op: op}, nil, nil) {
		l.write()
	}
}

// mostTrash is how many bytes of unread input are read of a connection that ends: more than a
// socket holds by default.
const mostTrash = 16 << 20

// drop closes the socket and removes the link. Other lists of the wire find that it is gone.
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
	// Unread input would make the kernel reset the connection, and the peer might lose what was
	// sent last. A peer that sends on and on is not waited for.
	for range mostTrash / len(w.trash) {
		if n, e := rawRecv(l.fd, w.trash[:]); e != 0 || n < len(w.trash) {
			break
		}
	}
	_ = unix.Shutdown(l.fd, unix.SHUT_RDWR)
	_ = unix.Close(l.fd)
	l.fd = -1
	w.conn.Forget(l.peer.ID)
}
