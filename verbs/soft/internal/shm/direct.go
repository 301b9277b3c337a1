//go:build linux

package shm

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Reaches implements wire.RemoteMemory.
func (p *remote) Reaches(rkey uint32) bool {
	return p.direct && !mem.Apart(p.region(rkey), rkey) || p.mapped(rkey) != nil
}

// Read implements wire.RemoteMemory: one copy, made by the reader's processor, from shared memory
// that this process has mapped, or by process_vm_readv. (In a push it is made by the peer's, see
// verbs/soft/push.go.) It checks the peer's region table before, so that nothing is read that the
// peer has not registered, and after the copy, since a region that was deregistered meanwhile may
// contain anything.
func (p *remote) Read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus {
	n := uint64(len(dst))
	if n == 0 {
		return verbs.WCSuccess
	}
	if !mem.Allows(p.region(rkey), rkey, addr, n, verbs.AccessRemoteRead) {
		return verbs.WCRemAccessErr
	}
	var err error
	if src := p.mapped(rkey).part(addr, n); src != nil {
		if !fault.Copy(dst, src) {
			err = unix.EFAULT
		}
	} else if p.direct {
		err = p.readAll(dst, addr)
	} else {
		err = unix.EFAULT // the peer has ended its sharing since Reaches
	}
	mem.LoadBarrier()
	switch {
	case !mem.Allows(p.region(rkey), rkey, addr, n, verbs.AccessRemoteRead):
		return verbs.WCRemAccessErr
	case err != nil:
		return p.readFailed(dst, err)
	}
	return verbs.WCSuccess
}

// readAll reads dst from the peer's memory at addr by process_vm_readv.
func (p *remote) readAll(dst []byte, addr uint64) (err error) {
	for len(dst) > 0 && err == nil {
		var k int
		k, err = p.moveAlive(unix.ProcessVMReadv, dst, addr)
		dst, addr = dst[k:], addr+uint64(k)
	}
	return err
}

// vmCall is process_vm_readv or process_vm_writev.
type vmCall func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

// moveAlive is move, but does not touch another process that has got the number of the peer's.
func (p *remote) moveAlive(call vmCall, ours []byte, addr uint64) (int, error) {
	if p.replaced() {
		return 0, unix.ESRCH
	}
	return p.move(call, ours, addr)
}

// replaced reports whether the peer's process has ended, so that its number may be another's. It
// asks the kernel where nobody has for a time in which all numbers might be used up: while this
// process was stopped, for one.
func (p *remote) replaced() bool {
	return wire.Monotonic()-p.w.watch.last > 2*watchEvery && p.ended()
}

// move makes one system call that copies between ours and the peer's memory at addr, and returns
// how many bytes it has copied. Its vectors are in p so that nothing is allocated.
func (p *remote) move(call vmCall, ours []byte, addr uint64) (int, error) {
	p.local[0].Base = &ours[0]
	p.local[0].SetLen(len(ours))
	p.remote[0] = unix.RemoteIovec{Base: uintptr(addr), Len: len(ours)}
	k, err := call(p.pid, p.local[:1], p.remote[:1], 0)
	p.local[0].Base = nil
	if err == nil && k == 0 {
		err = unix.EFAULT
	}
	return max(k, 0), err
}

// ReadMany implements wire.RemotePieces, for memory that is not mapped.
func (p *remote) ReadMany(ps []wire.Piece) int {
	n := 0
	for p.direct && n < len(ps) && p.mapped(ps[n].RKey) == nil {
		n++
	}
	n = p.moveMany(unix.ProcessVMReadv, ps[:p.allowed(ps[:n])])
	mem.LoadBarrier()
	return p.allowed(ps[:n]) // a region may have gone meanwhile
}

// allowed is how many of ps, from the first on, are memory that the peer lets us read.
func (p *remote) allowed(ps []wire.Piece) int {
	for i := range ps {
		if s := &ps[i]; !mem.Allows(p.region(s.RKey), s.RKey, s.Addr, uint64(len(s.Data)), verbs.AccessRemoteRead) {
			return i
		}
	}
	return len(ps)
}

// moveMany is move for several pieces. It returns how many were copied.
func (p *remote) moveMany(call vmCall, ps []wire.Piece) int {
	if len(ps) == 0 || p.replaced() {
		return 0
	}
	for i := range ps {
		s := &ps[i]
		p.local[i].Base = &s.Data[0]
		p.local[i].SetLen(len(s.Data))
		p.remote[i] = unix.RemoteIovec{Base: uintptr(s.Addr), Len: len(s.Data)}
	}
	k, _ := call(p.pid, p.local[:len(ps)], p.remote[:len(ps)], 0)
	clear(p.local[:len(ps)])
	for i := range ps {
		if k -= len(ps[i].Data); k < 0 {
			return i
		}
	}
	return len(ps)
}

// readFailed returns the status for a copy to dst that the kernel has refused. EFAULT: memory at
// one end is gone. ESRCH: the peer has ended, which the next poll looks for.
func (p *remote) readFailed(dst []byte, err error) verbs.WCStatus {
	switch err {
	case unix.EFAULT:
		return mem.Gone(dst)
	case unix.ESRCH:
		p.w.attention = true
		return verbs.WCRetryExcErr
	}
	return verbs.WCGeneralErr
}

// readable reports whether the pages of a mapping of this process exist, and maps them: missing
// pages are an error then, and no SIGBUS.
func readable(b []byte) bool {
	if err := unix.Madvise(b, unix.MADV_POPULATE_READ); err != unix.EINVAL {
		return err == nil
	}
	// Before Linux 5.14. Where the kernel refuses this call, too, memory is read by packets.
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

// canRead finds out whether the kernel lets this process read the peer's memory.
func (p *remote) canRead(o *offer) bool {
	got := new(uint64)
	k, err := p.move(unix.ProcessVMReadv, wordBytes(got), o.probeAddr)
	return err == nil && k == 8 && *got == o.probe
}

// canWrite finds out whether the kernel lets this process write to the peer's memory, by writing
// what is there already.
func (p *remote) canWrite(o *offer) bool {
	word := new(uint64)
	*word = o.probe
	k, err := p.move(unix.ProcessVMWritev, wordBytes(word), o.probeAddr)
	return err == nil && k == 8
}

// allowReading makes Yama, in its default mode, let other processes of this user read and write
// this process's memory, as kernels without Yama do. Yama has one exception per process, so that it
// cannot name single peers.
var allowReading = sync.OnceFunc(func() {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) == "1" {
		const anyTracer = ^uintptr(0) // PR_SET_PTRACER_ANY
		_ = unix.Prctl(unix.PR_SET_PTRACER, anyTracer, 0, 0, 0)
	}
})
