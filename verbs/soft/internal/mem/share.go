package mem

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// Share is memory that the program registers for as long as it uses it, and that peers may map. The
// regions that work requests need within it are registered beside it: each has a key of its own, so
// that one transfer can be ended alone.
type Share struct {
	t     *Table
	r     *Region // nil: ended; no peer has rights to it
	users int     // regions that lie in it
}

// Share makes buf, which is not empty, shared memory. fd is the descriptor of a memfd of these
// pages, which peers may open, or -1.
func (t *Table) Share(buf []byte, fd int) (*Share, error) {
	i, _ := t.search(AddrOf(buf))
	for _, s := range t.shared[max(i-1, 0):min(i+1, len(t.shared))] {
		if Contains(s.r.buf, buf[:1]) || Contains(buf, s.r.buf[:1]) {
			return nil, &verbs.Error{Op: "reg_mr", Errno: syscall.EEXIST, Detail: "the memory is registered already, in whole or in part"}
		}
	}
	r, err := t.register(buf, 0, nil, isShared|uint64(uint32(fd)))
	if err != nil {
		return nil, &verbs.Error{Op: "reg_mr", Errno: syscall.ENOMEM, Detail: err.Error()}
	}
	s := &Share{t: t, r: r}
	t.shared = slices.Insert(t.shared, i, s)
	return s, nil
}

// Close ends the sharing: no peer that looks at the region table afterwards maps or reads the
// memory. It fails with EBUSY while regions lie in it.
func (s *Share) Close() error {
	switch {
	case s.r == nil:
		return &verbs.Error{Op: "dereg_mr", Errno: syscall.EINVAL, Detail: "the memory is not shared any more"}
	case s.users > 0:
		return &verbs.Error{Op: "dereg_mr", Errno: syscall.EBUSY, Detail: fmt.Sprintf("%d transfers use the memory", s.users)}
	}
	i, ok := s.t.search(s.r.addr)
	if invariant.Enabled {
		invariant.Check(ok && s.t.shared[i] == s, "region", "shared memory at %#x is not in the list", s.r.addr)
	}
	s.t.shared = slices.Delete(s.t.shared, i, i+1)
	s.t.Remove(s.r.key)
	s.r = nil
	return nil
}

// search finds the place of shared memory that begins at addr.
func (t *Table) search(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(t.shared, addr, func(s *Share, addr uint64) int { return cmp.Compare(s.r.addr, addr) })
}

// shareOf returns the shared memory that buf, which is not empty, lies in, or nil.
func (t *Table) shareOf(buf []byte) *Share {
	i, at := t.search(AddrOf(buf))
	if !at {
		i--
	}
	if i < 0 || !Contains(t.shared[i].r.buf, buf) {
		return nil
	}
	return t.shared[i]
}

// Contains reports whether all of part, which must not be empty, lies in b.
func Contains(b, part []byte) bool {
	if len(b) == 0 || len(part) == 0 {
		return false
	}
	off := AddrOf(part) - AddrOf(b) // a part before b wraps to a large number
	return off < uint64(len(b)) && uint64(len(part)) <= uint64(len(b))-off
}
