//go:build linux

package shm

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// quietTime limits the wait for a peer that was stopped while it writes, or misbehaves: the owner's
// lock is held meanwhile.
const quietTime = 2 * time.Second

// copyTime is more than a peer that is not stopped takes for a chunk, unless it is not run.
const copyTime = time.Millisecond

// lookTime is how often the process of a peer that writes is looked at.
const lookTime = 20 * time.Microsecond

// Write implements wire.RemoteWriter. It looks at the grant after it has set the busy flag: from
// then on the peer waits (Revoke) before it gives the memory back to its program.
func (p *remote) Write(src []byte, addr uint64, grant uint32) verbs.WCStatus {
	p.tx.SetBusy(true)
	defer p.tx.SetBusy(false)
	if !p.tx.Granted(grant) {
		return verbs.WCRemAccessErr
	}
	for len(src) > 0 {
		k, err := p.moveAlive(unix.ProcessVMWritev, src, addr)
		if err != nil {
			return p.moveFailed(src, err)
		}
		src, addr = src[k:], addr+uint64(k)
	}
	return verbs.WCSuccess
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
func (l *link) Revoke(grant uint32) {
	l.peer.rx.Revoke(grant)
	l.Quiet()
}

// RevokeAll implements wire.PushLink.
func (l *link) RevokeAll() {
	if l.peer == nil || l.peer.rx == nil {
		return // nobody has asked for anything, or its requests have ended
	}
	l.peer.rx.RevokeAll()
	l.Quiet()
}

// Quiet waits for the chunk that the peer may be writing, some microseconds. A process that has
// ended writes nothing, whatever its busy flag says. One that was stopped is waited for at length
// once, and again only for the time that it takes to copy the chunk, if it goes on.
func (l *link) Quiet() {
	chunk := l.copying()
	if chunk == 0 {
		return
	}
	limit := int64(quietTime)
	if chunk == l.peer.stuck {
		limit = int64(copyTime)
	}
	start := wire.Monotonic()
	for look := start + int64(lookTime); l.copying() == chunk; runtime.Gosched() {
		now := wire.Monotonic()
		if now < look {
			continue
		}
		if l.peer.ended() {
			return
		}
		if now-start > limit {
			l.peer.stuck = chunk
			return
		}
		look = now + int64(lookTime)
	}
}

// ended reports whether the peer's process has ended.
func (p *remote) ended() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	k, _ := unix.Poll(fds, 0)
	return k > 0
}
