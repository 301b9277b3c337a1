package ibverbs

import (
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

var _ verbs.Sharer = (*device)(nil)

// share is memory that is registered in each domain while the program has it shared. Regions within
// it are parts of that registration, and need no system call.
type share struct {
	d     *device
	buf   []byte
	whole map[*domain]*region
	parts int // that are not deregistered
}

// shareAccess is what parts can be for.
const shareAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead

// Share registers buf in the domains that there are. fd is of no use to a NIC.
func (d *device) Share(buf []byte, _ int) (io.Closer, error) {
	const op = "reg_mr"
	switch {
	case d.closed:
		return nil, errClosed(op)
	case len(buf) == 0:
		return nil, fail(op, syscall.EINVAL, "a region has at least a byte")
	}
	for _, s := range d.shares {
		if start(s.buf) < start(buf)+uintptr(len(buf)) && start(buf) < start(s.buf)+uintptr(len(s.buf)) {
			return nil, fail(op, syscall.EEXIST, "the memory is shared already, in whole or in part")
		}
	}
	s := &share{d: d, buf: buf, whole: map[*domain]*region{}}
	for _, p := range d.domains {
		r, err := p.register(buf, shareAccess)
		if err != nil {
			_ = s.deregister()
			return nil, err
		}
		s.whole[p] = r
	}
	d.shares = append(d.shares, s)
	return s, nil
}

// Close ends the registration.
func (s *share) Close() error {
	const op = "dereg_mr"
	switch {
	case s.buf == nil:
		return fail(op, syscall.EINVAL, "the memory is not shared any more")
	case s.parts > 0:
		return fail(op, syscall.EBUSY, fmt.Sprintf("%d regions lie in the shared memory", s.parts))
	}
	if err := s.deregister(); err != nil {
		return err
	}
	s.d.shares = slices.DeleteFunc(s.d.shares, func(o *share) bool { return o == s })
	s.buf = nil
	return nil
}

func (s *share) deregister() error {
	for p := range s.whole {
		if err := s.leave(p); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the registration in a domain, which may have none.
func (s *share) leave(p *domain) error {
	r := s.whole[p]
	if r == nil {
		return nil
	}
	err := r.Dereg()
	if err == nil {
		delete(s.whole, p)
	}
	return err
}

// part is a region in shared memory. Its keys are those of all of that: its end takes no right from
// a peer.
type part struct {
	s     *share
	whole *region // nil: it is deregistered
	buf   []byte
}

// part returns buf as a part of shared memory: nil where it is none.
func (p *domain) part(buf []byte, access verbs.AccessFlags) *part {
	if access&^shareAccess != 0 {
		return nil
	}
	d := p.d
	for _, s := range d.shares {
		if off := start(buf) - start(s.buf); off >= uintptr(len(s.buf)) || uintptr(len(buf)) > uintptr(len(s.buf))-off {
			continue
		}
		whole := s.whole[p]
		if whole == nil {
			return nil
		}
		var r *part
		if n := len(d.unused); n > 0 {
			r, d.unused = d.unused[n-1], d.unused[:n-1]
		} else {
			r = &part{}
		}
		*r = part{s, whole, buf}
		s.parts++
		return r
	}
	return nil
}

func (r *part) LKey() uint32 {
	if r.whole == nil {
		return 0
	}
	return r.whole.lkey
}

func (r *part) RKey() uint32 {
	if r.whole == nil {
		return 0
	}
	return r.whole.rkey
}

func (r *part) Addr() uint64 { return uint64(start(r.buf)) }
func (r *part) Len() int     { return len(r.buf) }

// Dereg makes the object free for the next part.
func (r *part) Dereg() error {
	if r.whole == nil {
		return fail("dereg_mr", syscall.EINVAL, "it is deregistered already")
	}
	r.s.parts--
	d := r.s.d
	*r = part{}
	d.unused = append(d.unused, r)
	return nil
}
