package tcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// socket is a connection as a link wants it: a descriptor that Go's netpoller does not know.
type socket struct{ fd int }

func (s *socket) Close() error { return unix.Close(s.fd) }

// prepare duplicates the connection's descriptor and sets its options. It runs in the background.
func (w *Wire) prepare(conn net.Conn, _ *wire.Address) (any, error) {
	if err := keepalive.Idle(conn, w.env.PeerTimeout); err != nil {
		return nil, err
	}
	raw, err := conn.(*net.TCPConn).SyscallConn() // which keepalive has looked at
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := raw.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &socket{fd}, nil
}

// A host that is gone, or cut off, is found by the kernel's keepalive while nothing waits to be
// acknowledged, and otherwise by what follows. TCP_USER_TIMEOUT would be less to do, but ends a
// connection also whose peer is well and just does not read for so long. What a link counts is
// segments that come in: acknowledgements, and the questions of the peer's own keepalive, which do
// not become rarer with time as retransmissions and window probes do. So a cut that has ended is
// noticed soon, and the data has the time that it needs. Looks are counted, not seconds: a process
// that was stopped has not looked.
const (
	looks      = 32 // in Config.PeerTimeout
	mostSilent = 30 // in a row that end a link: the first one comes late by up to one, and what it finds then is up to one old
)

// lookForSilent ends the links to peers that are gone.
func (w *Wire) lookForSilent() {
	w.due.Store(false)
	for _, l := range w.byFD {
		l.look()
	}
}

func (l *link) look() {
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return // it is the kernel that will say why, at the next read
	}
	if heard := info.Segs_in; heard != l.heard || l.out.pending() == 0 && info.Unacked == 0 && info.Notsent_bytes == 0 {
		l.heard, l.silent = heard, 0
		return
	}
	if l.silent++; l.silent >= mostSilent {
		l.fail(fmt.Errorf("its host, or the way to it, has been silent for %v: %w",
			l.w.env.PeerTimeout, syscall.ETIMEDOUT))
	}
}
