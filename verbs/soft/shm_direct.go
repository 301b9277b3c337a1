//go:build linux

package soft

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
)

// Reading a peer's memory by process_vm_readv: one copy, done by the reader alone.
//
// Where both sides are to copy (twice the bandwidth): the reader would publish a transfer in a block beside its inbox,
// {rkey, addr, destination, length, cursor}, and raise the peer; both then take chunks of maxChunk from the cursor by an
// atomic add, the reader here with process_vm_readv, the owner of the data in its poll with process_vm_writev, and the
// reader completes when every chunk's done bit is set, taking over those of a peer that does not move. peerDirect says
// whether the peer may write as well: the kernel's check is the same for both calls.

// read copies from the peer's memory. The peer's region table is checked before, so that we read nothing that it does
// not offer, and afterwards, because a region that was withdrawn meanwhile may hold anything.
func (p *shmPeer) read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus {
	n := uint64(len(dst))
	if n == 0 {
		return verbs.WCSuccess
	}
	if !regionReadable(p.table, rkey, addr, n, verbs.AccessRemoteRead) {
		return verbs.WCRemAccessErr
	}
	var err error
	at := addr
	for len(dst) > 0 && err == nil {
		var k int
		k, err = p.readSome(dst, at)
		dst, at = dst[k:], at+uint64(k)
	}
	switch {
	case !regionReadable(p.table, rkey, addr, n, verbs.AccessRemoteRead):
		return verbs.WCRemAccessErr
	case err != nil:
		return p.readFailed(err)
	}
	return verbs.WCSuccess
}

// readSome is one system call. The vectors are in p so that nothing is allocated.
func (p *shmPeer) readSome(dst []byte, addr uint64) (int, error) {
	p.local[0].Base = &dst[0]
	p.local[0].SetLen(len(dst))
	p.remote[0] = unix.RemoteIovec{Base: uintptr(addr), Len: len(dst)}
	k, err := unix.ProcessVMReadv(p.pid, p.local[:], p.remote[:], 0)
	p.local[0].Base = nil
	if err == nil && k == 0 {
		err = unix.EFAULT
	}
	return max(k, 0), err
}

// readFailed is the status for a read that the kernel refused; the next poll looks whether the peer still lives. EFAULT is
// memory that is registered and not there, on either side: unmapped, protected, or beyond the end of a file.
func (p *shmPeer) readFailed(err error) verbs.WCStatus {
	p.w.attention = true
	switch err {
	case unix.ESRCH:
		return verbs.WCRetryExcErr
	default:
		return verbs.WCRemOpErr
	}
}

// canRead tries whether the kernel lets us read the peer's memory.
func (p *shmPeer) canRead(o *shmOffer) bool {
	got := new(uint64)
	k, err := p.readSome(wordBytes(got), o.probeAddr)
	return err == nil && k == 8 && *got == o.probe
}

// allowReading asks Yama, where it wants to be asked, to let other processes of this user read our memory, which is what
// kernels without Yama allow anyway. It knows one exception a process, so it cannot be for single peers.
var allowReading = sync.OnceFunc(func() {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) == "1" {
		const anyTracer = ^uintptr(0) // PR_SET_PTRACER_ANY
		_ = unix.Prctl(unix.PR_SET_PTRACER, anyTracer, 0, 0, 0)
	}
})
