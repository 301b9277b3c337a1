//go:build linux

package shm

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// Memory that a program has allocated to be shared (mem.Share) is a memfd. Its slot of the region
// table names a descriptor of that process, which peers open by /proc when they first read from the
// memory: that needs the same user, and neither a message nor the right to trace the process. Where
// it is refused they read as from any memory. A peer that ends the sharing frees the pages, so that
// a mapping which is kept takes no memory.

// mapping is a peer's shared region.
type mapping struct {
	key  uint32
	addr uint64         // in the peer
	seg  *memfd.Segment // nil: it cannot be mapped
}

// part is n bytes at the peer's address addr, or nil.
func (m *mapping) part(addr, n uint64) []byte {
	if m == nil || addr < m.addr {
		return nil
	}
	off, size := addr-m.addr, uint64(len(m.seg.Mem))
	if off > size || n > size-off {
		return nil
	}
	return m.seg.Mem[off : off+n : off+n]
}

// mapped returns the shared region of the peer that its region rkey lies in, and maps it at first;
// nil: it lies in none, or in one that cannot be mapped.
func (p *remote) mapped(rkey uint32) *mapping {
	key := mem.Home(p.region(rkey), rkey)
	if key == 0 {
		return nil
	}
	i := slices.IndexFunc(p.shared, func(m *mapping) bool { return m.key == key })
	if i < 0 {
		p.dropEnded()
		i = len(p.shared)
		p.shared = append(p.shared, p.openShared(key))
	}
	if m := p.shared[i]; m.seg != nil {
		return m
	}
	return nil
}

// openShared maps a shared region of the peer.
func (p *remote) openShared(key uint32) *mapping {
	m := &mapping{key: key}
	at, ok := mem.Shared(p.region(key), key)
	const most = 1 << 46 // larger than any memory; and fits an int
	if !ok || at.Len == 0 || at.Len > most || at.Len%uint64(os.Getpagesize()) != 0 {
		return m
	}
	m.addr = at.Addr
	seg, err := p.adoptShared(at.FD, int(at.Len))
	if err != nil {
		if log := p.w.env.Log; log != nil {
			log.Debug("shared memory of a peer is read without mapping it", "pid", p.pid, "err", err)
		}
		return m
	}
	m.seg = seg
	return m
}

// adoptShared opens descriptor fd of the peer's process and maps it.
func (p *remote) adoptShared(fd, n int) (*memfd.Segment, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", p.pid, fd)
	// To open something else than a memfd could have effects.
	name, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(name, "/memfd:") {
		return nil, fmt.Errorf("the peer's descriptor %d is no memfd but %q", fd, name)
	}
	own, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("open "+path, err)
	}
	defer unix.Close(own)
	if p.ended() {
		return nil, unix.ESRCH // the process that was opened may be another one, of the same number
	}
	return memfd.Adopt(own, n, unix.PROT_READ, memfd.Allocated)
}

// dropEnded unmaps the regions that the peer does not share any more.
func (p *remote) dropEnded() {
	p.shared = slices.DeleteFunc(p.shared, func(m *mapping) bool {
		if _, ok := mem.Shared(p.region(m.key), m.key); ok {
			return false
		}
		m.seg.Close()
		return true
	})
}
