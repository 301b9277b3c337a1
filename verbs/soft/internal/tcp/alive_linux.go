package tcp

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// socket is a connected socket that is not in Go's netpoller.
type socket struct {
	fd     int
	peer   *wire.Address
	sealed *sealed // nil: the connection is plain
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// guard has the kernel end a new connection whose host is silent for PeerTimeout; link.attach takes
// over. It runs in the background.
func (w *Wire) guard(conn net.Conn) error { return keepalive.All(conn, w.env.PeerTimeout) }

// prepare duplicates the connection's descriptor. It runs in the background.
func (w *Wire) prepare(conn net.Conn, peer *wire.Address) (any, error) {
	fd, err := dial.Duplicate(conn.(*net.TCPConn)) // guard fails for other types
	if err != nil {
		return nil, err
	}
	if sameHost(conn.LocalAddr(), conn.RemoteAddr()) {
		_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") // else it is slower
	}
	return &socket{fd: fd, peer: peer}, nil // with TCP_NODELAY, which package net sets
}

// sameHost says that a connection does not leave the host. Then there is no network whose
// congestion could be controlled, and the pacing of an algorithm like BBR, a timer for every few
// packets, takes a fifth of a sender's time.
func sameHost(local, remote net.Addr) bool {
	l, ok := local.(*net.TCPAddr)
	r, ok2 := remote.(*net.TCPAddr)
	return ok && ok2 && (l.IP.Equal(r.IP) || l.IP.IsLoopback() && r.IP.IsLoopback())
}

// The kernel's keepalive detects a host that is gone or cut off while all data is acknowledged.
// Else lookForSilent does: 32 times in PeerTimeout it looks for signs of life on a link with
// unacknowledged data, of which the first ends the keepalive: the silence before it counts too.
// TCP_USER_TIMEOUT would be simpler, but also ends connections whose peer is alive and does not
// read for so long. Looks are counted and not time, since a process that was stopped has not
// looked.
//
// While the peer's window is open the sign is that more is acknowledged: a host that hears us
// acknowledges what it has room for, and segments that arrive may be of a peer that only we hear.
// While the window is closed it is TCP segments that arrive: acknowledgements of window probes, and
// the peer's keepalive probes, which, unlike retransmissions and window probes, do not become rarer
// with time, so that the end of a network failure is noticed soon.
const (
	looks      = 32 // in PeerTimeout
	mostSilent = 30 // silent looks in a row that end a link; silence began up to 2 intervals earlier
)

// lookForSilent ends the links to peers that have been silent for PeerTimeout.
func (w *Wire) lookForSilent() {
	w.due.Store(false)
	for _, l := range w.byFD {
		l.look()
	}
}

func (w *Wire) lookEvery() time.Duration { return w.env.PeerTimeout / looks }

func (l *link) look() {
	info, err := unix.GetsockoptTCPInfo(l.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return // the next read fails too, and reports why
	}
	alive := info.Bytes_acked != l.acked || info.Segs_in != l.heard && !owed(info)
	l.acked, l.heard = info.Bytes_acked, info.Segs_in
	if l.out.pending() == 0 && info.Unacked == 0 && info.Notsent_bytes == 0 { // the kernel's keepalive looks
		l.silent = int(time.Duration(info.Last_ack_recv) * time.Millisecond / l.w.lookEvery())
		return
	}
	if alive {
		l.silent = 0
		return
	}
	if l.silent++; l.silent >= mostSilent && l.repeated(info) {
		// The peer hears at once, if it hears us at all, what it would learn of much later.
		_ = unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		l.fail(fmt.Errorf("its host, or the way to it, has been silent for %v: %w",
			l.w.env.PeerTimeout, syscall.ETIMEDOUT))
	}
}

// owed reports whether an acknowledgement is owed: data is under way that the peer's window has
// room for. Kernels before 5.4 do not tell the window.
func owed(info *unix.TCPInfo) bool { return info.Unacked > 0 && info.Snd_wnd > 0 }

// repeated reports whether data that is under way was sent again when an interruption of half of
// PeerTimeout would have been over, and could have been acknowledged by now. The pauses between
// repetitions may be as long as the silence before them, see keepalive.Idle.
func (l *link) repeated(info *unix.TCPInfo) bool {
	every := l.w.lookEvery()
	sent := time.Duration(info.Last_data_sent) * time.Millisecond // ago
	return info.Unacked == 0 || sent >= every && sent <= time.Duration(l.silent-looks/2)*every
}
