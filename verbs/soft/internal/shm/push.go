//go:build linux

package shm

import (
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Write implements wire.RemoteWriter. It looks at the grant after it has set the busy flag: from
// then on the peer does not give the memory back to its program (Writes).
func (p *remote) Write(src []byte, addr uint64, grant uint32) verbs.WCStatus {
	p.tx.SetBusy(true)
	defer p.tx.SetBusy(false)
	if !p.tx.Granted(grant) {
		return verbs.WCRemAccessErr
	}
	for len(src) > 0 {
		k, err := p.moveAlive(unix.ProcessVMWritev, src, addr)
		if err != nil {
			return p.writeFailed(err)
		}
		src, addr = src[k:], addr+uint64(k)
	}
	return verbs.WCSuccess
}

// writeFailed is readFailed for a push. Where memory at one end is gone the kernel does not forbid
// pushes: the peer reads then, and finds out at which.
func (p *remote) writeFailed(err error) verbs.WCStatus {
	switch err {
	case unix.EFAULT:
		return verbs.WCRemAccessErr
	case unix.ESRCH:
		p.w.attention = true
		return verbs.WCRetryExcErr
	}
	return verbs.WCRemOpErr
}

// WriteMany implements wire.RemotePieces.
func (p *remote) WriteMany(ps []wire.Piece) int {
	p.tx.SetBusy(true)
	defer p.tx.SetBusy(false)
	n := 0
	for n < len(ps) && p.tx.Granted(ps[n].RKey) {
		n++
	}
	return p.moveMany(unix.ProcessVMWritev, ps[:n])
}

// HoldCopy has the peer see this end in the middle of a copy until release is called. It is for
// tests.
func (l *link) HoldCopy() (release func()) {
	tx := l.peer.tx
	tx.SetBusy(true)
	return func() { tx.SetBusy(false) }
}

// Upper implements wire.PushLink.
func (l *link) Upper() bool { return l.w.env.Self.Rank > l.addr.Rank }

// CanPush implements wire.PushLink.
func (l *link) CanPush() bool {
	return l.state == shmUp && l.peer.direct && l.peer.peerWrites
}

// Attended implements wire.PushLink.
func (l *link) Attended() bool { return !l.peer.tx.NeedsSignal() }

// Busy implements wire.PushLink.
func (l *link) Busy() bool { return l.copying() != 0 }

// copying numbers the chunk that the peer is writing; 0: none.
func (l *link) copying() uint32 {
	if l.peer == nil || l.peer.rx == nil {
		return 0
	}
	return l.peer.rx.Busy()
}

// CannotPush implements wire.PushLink.
func (l *link) CannotPush() {
	if l.peer != nil {
		l.peer.peerWrites = false
	}
}

// Grant implements wire.PushLink.
func (l *link) Grant() (uint32, bool) { return l.peer.rx.Grant() }

// Return implements wire.PushLink.
func (l *link) Return(grant uint32) { l.peer.rx.Return(grant) }

// Revoke implements wire.PushLink.
func (l *link) Revoke(grant uint32) (chunk uint32) {
	l.peer.rx.Revoke(grant)
	return l.revoked()
}

// RevokeAll implements wire.PushLink.
func (l *link) RevokeAll() (chunk uint32) {
	if l.peer == nil || l.peer.rx == nil {
		return 0 // nobody has asked for anything, or its requests have ended
	}
	l.peer.rx.RevokeAll()
	return l.revoked()
}

// revoked notes the chunk that the peer is writing, if any: its ring, which tells when that ends,
// is needed until then.
func (l *link) revoked() (chunk uint32) {
	if chunk = l.copying(); chunk != 0 {
		l.peer.late = chunk
	}
	return chunk
}

// Writes implements wire.PushLink.
func (l *link) Writes(chunk uint32) bool { return l.peer != nil && l.peer.writes(chunk) }

// writes reports whether the peer is still writing that chunk, if it is not 0. A process that has
// ended writes nothing, whatever its busy flag says; nor does one that has closed the socket, which
// it does only between its copies.
func (p *remote) writes(chunk uint32) bool {
	return chunk != 0 && p.rx != nil && p.rx.Busy() == chunk && !p.ended() && !isReady(p.sock, unix.POLLRDHUP)
}

// ended reports whether the peer's process has ended.
func (p *remote) ended() bool { return isReady(p.pidfd, unix.POLLIN) }

// isReady reports whether a descriptor has one of these events now, an error or a hang-up.
func isReady(fd int, events int16) bool {
	k, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, 0)
	return k > 0
}
