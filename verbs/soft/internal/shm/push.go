//go:build linux

package shm

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// quietTime bounds the waiting for a peer that was stopped in the middle of a chunk, or lies: the
// engine's lock is held.
const quietTime = 2 * time.Second

// Write copies to the peer's memory. Its region table is checked after we have said that we are
// copying: from then on the peer waits for us before it lets the memory go.
func (p *remote) Write(src []byte, addr uint64, rkey uint32) verbs.WCStatus {
	p.tx.SetBusy(true)
	defer p.tx.SetBusy(false)
	if !mem.Allows(p.region(rkey), rkey, addr, uint64(len(src)), verbs.AccessRemoteWrite) {
		return verbs.WCRemAccessErr
	}
	for len(src) > 0 {
		k, err := p.move(unix.ProcessVMWritev, src, addr)
		if err != nil {
			return p.moveFailed(err)
		}
		src, addr = src[k:], addr+uint64(k)
	}
	return verbs.WCSuccess
}

func (l *link) CanPush() bool {
	return l.state == shmUp && l.peer.direct && l.peer.peerWrites
}

func (l *link) CannotPush() {
	if l.peer != nil {
		l.peer.peerWrites = false
	}
}

// Quiet waits for the chunk that the peer may be copying, some microseconds. What a dead peer's
// word says does not count.
func (l *link) Quiet() {
	if l.peer == nil || l.peer.rx == nil {
		return
	}
	for start := wire.Monotonic(); l.peer.rx.Busy(); runtime.Gosched() {
		if l.peer.ended() || wire.Monotonic()-start > int64(quietTime) {
			return
		}
	}
}

// ended says that the peer's process has.
func (p *remote) ended() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	k, _ := unix.Poll(fds, 0)
	return k > 0
}
