//go:build linux

package shm

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// Reading a peer's memory by process_vm_readv: one copy, done by the reader alone. Or by the peer
// alone: verbs/soft/push.go.
//
// Where both sides are to copy (twice the bandwidth): the reader would publish a transfer in a
// block beside its inbox, {rkey, addr, destination, length, cursor}, and raise the peer; both then
// take chunks of wire.MaxChunk from the cursor by an atomic add, the reader here with
// process_vm_readv, the owner of the data in its poll with process_vm_writev, and the reader
// completes when every chunk's done bit is set, taking over those of a peer that does not move.

// Read copies from the peer's memory. The peer's region table is checked before, so that we read
// nothing that it does not offer, and afterwards, because a region that was withdrawn meanwhile may
// hold anything.
func (p *remote) Read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus {
	n := uint64(len(dst))
	if n == 0 {
		return verbs.WCSuccess
	}
	if !mem.Allows(p.region(rkey), rkey, addr, n, verbs.AccessRemoteRead) {
		return verbs.WCRemAccessErr
	}
	var err error
	at := addr
	for len(dst) > 0 && err == nil {
		var k int
		k, err = p.move(unix.ProcessVMReadv, dst, at)
		dst, at = dst[k:], at+uint64(k)
	}
	switch {
	case !mem.Allows(p.region(rkey), rkey, addr, n, verbs.AccessRemoteRead):
		return verbs.WCRemAccessErr
	case err != nil:
		return p.moveFailed(err)
	}
	return verbs.WCSuccess
}

// vmCall is process_vm_readv or process_vm_writev.
type vmCall func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

// move is one system call between ours and the peer's memory at addr. The vectors are in p so that
// nothing is allocated.
func (p *remote) move(call vmCall, ours []byte, addr uint64) (int, error) {
	p.local[0].Base = &ours[0]
	p.local[0].SetLen(len(ours))
	p.remote[0] = unix.RemoteIovec{Base: uintptr(addr), Len: len(ours)}
	k, err := call(p.pid, p.local[:], p.remote[:], 0)
	p.local[0].Base = nil
	if err == nil && k == 0 {
		err = unix.EFAULT
	}
	return max(k, 0), err
}

// moveFailed is the status for a copy that the kernel refused; the next poll looks whether the peer
// still lives. EFAULT is memory that is registered and not there, on either side: unmapped,
// protected, or beyond the end of a file.
func (p *remote) moveFailed(err error) verbs.WCStatus {
	p.w.attention = true
	switch err {
	case unix.ESRCH:
		return verbs.WCRetryExcErr
	default:
		return verbs.WCRemOpErr
	}
}

// readable tries whether the pages of a mapping are there, and maps them. It is for links whose
// peer's memory can be read, since it is this process's own that is read in the same way.
func readable(b []byte) bool {
	const granule = 4096 // the smallest page there is
	got := make([]byte, len(b)/granule)
	remote := make([]unix.RemoteIovec, len(got))
	for i := range remote {
		remote[i] = unix.RemoteIovec{Base: uintptr(mem.AddrOf(b[i*granule:])), Len: 1}
	}
	local := []unix.Iovec{{Base: &got[0]}}
	local[0].SetLen(len(got))
	k, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0)
	return err == nil && k == len(got)
}

// canRead tries whether the kernel lets us read the peer's memory.
func (p *remote) canRead(o *offer) bool {
	got := new(uint64)
	k, err := p.move(unix.ProcessVMReadv, wordBytes(got), o.probeAddr)
	return err == nil && k == 8 && *got == o.probe
}

// canWrite tries whether the kernel lets us write to the peer's memory: the word that lies there
// already.
func (p *remote) canWrite(o *offer) bool {
	word := new(uint64)
	*word = o.probe
	k, err := p.move(unix.ProcessVMWritev, wordBytes(word), o.probeAddr)
	return err == nil && k == 8
}

// allowReading asks Yama, where it wants to be asked, to let other processes of this user read our
// memory, and write to it, which is what kernels without Yama allow anyway. It knows one exception
// a process, so it cannot be for single peers.
var allowReading = sync.OnceFunc(func() {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) == "1" {
		const anyTracer = ^uintptr(0) // PR_SET_PTRACER_ANY
		_ = unix.Prctl(unix.PR_SET_PTRACER, anyTracer, 0, 0, 0)
	}
})
