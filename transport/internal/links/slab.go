package links

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
)

// slab is registered buffers of one size. They are one allocation, whose pages are touched only
// when used.
type slab struct {
	mem  []byte   // the buffers, by slot; nil: not open
	mr   verbs.MR // of mem
	size int      // of a buffer, bytes
}

// open allocates n buffers of size bytes, which what names, and registers them with access.
func (s *slab) open(pd verbs.PD, what string, n, size int, access verbs.AccessFlags) error {
	mem, err := newMemory(n * size)
	if err != nil {
		return fmt.Errorf("%s, %d of %d bytes: %w", what, n, size, err)
	}
	mr, err := pd.RegMR(mem, access)
	if err != nil {
		_ = freeMemory(mem)
		return fmt.Errorf("%s, %d of %d bytes: %w", what, n, size, err)
	}
	s.mem, s.mr, s.size = mem, mr, size
	return nil
}

// at returns the buffer in a slot.
func (s *slab) at(slot uint64) []byte {
	off := int(slot) * s.size
	return s.mem[off : off+s.size : off+s.size]
}

// close deregisters and frees the buffers, if they are open. The device must be done with them.
// What it refuses to deregister, and what a peer may still write to, stays for ever.
func (s *slab) close() error {
	if s.mem == nil {
		return nil
	}
	kept := false
	if mr, ok := s.mr.(verbs.QuietMR); ok {
		kept = mr.Kept()
	}
	if err := s.mr.Dereg(); err != nil {
		return err
	}
	mem := s.mem
	*s = slab{}
	if kept {
		return nil
	}
	return freeMemory(mem)
}
