package soft

import (
	"io"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// protDomain is a protection domain.
type protDomain struct {
	mem.Domain // Users counts MRs, SRQs and QPs
	d          *Device
	gone       bool // deallocated
}

// fail makes the error of a call.
func fail(op string, errno syscall.Errno, detail string) error {
	return &verbs.Error{Op: op, Errno: errno, Detail: detail}
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (verbs.PD, error) {
	defer d.enter("alloc_pd")()
	d.users++
	p := &protDomain{d: d}
	p.Quiet = d.quiet
	if invariant.Enabled {
		p.Enter = d.enter
	}
	return p, nil
}

// Dealloc frees the domain; it fails while MRs, SRQs or QPs of it exist.
func (p *protDomain) Dealloc() error {
	defer p.d.enter("dealloc_pd")()
	if p.gone {
		return fail("dealloc_pd", syscall.EINVAL, "the protection domain is gone already")
	}
	if p.Users > 0 {
		return fail("dealloc_pd", syscall.EBUSY, "memory regions, SRQs or QPs of the protection domain live")
	}
	p.gone = true
	p.d.users--
	return nil
}

const accessAll = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// RegMR registers buf. Since every rendezvous does so, it allocates nothing in the long run.
func (p *protDomain) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	if invariant.Enabled {
		defer p.d.enter("reg_mr")()
	}
	switch {
	case len(buf) == 0:
		return nil, fail("reg_mr", syscall.EINVAL, "empty buffer")
	case access&^accessAll != 0:
		return nil, fail("reg_mr", syscall.EINVAL, "unknown access flags")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		// ibv_reg_mr(3): remote write and atomics need local write.
		return nil, fail("reg_mr", syscall.EINVAL, "remote write or atomic access without AccessLocalWrite")
	}
	if limit := p.d.cfg.limits.RegBytes; limit > 0 && p.d.regBytes+len(buf) > limit {
		return nil, fail("reg_mr", syscall.ENOMEM, "more memory than can be registered")
	}
	r, err := p.d.regions.Register(buf, access, &p.Domain)
	if err != nil {
		return nil, fail("reg_mr", syscall.ENOMEM, err.Error())
	}
	p.Users++
	if p.d.cfg.limits.RegBytes > 0 {
		p.d.regBytes += len(buf)
		return &countedMR{r, p.d}, nil
	}
	return r, nil
}

// countedMR is a region of a device with hook.Limits.RegBytes.
type countedMR struct {
	*mem.Region
	d *Device
}

// Dereg deregisters the region, whose bytes others can have then.
func (m *countedMR) Dereg() error {
	n := m.Len()
	err := m.Region.Dereg()
	if err == nil {
		m.d.regBytes -= n
	}
	return err
}

// Share implements verbs.Sharer. With a descriptor, all of whose pages are allocated, peers on this
// host may map the memory, and so read it without a copy by the kernel, and where the kernel lets
// them read no other memory.
func (d *Device) Share(buf []byte, fd int) (io.Closer, error) {
	if invariant.Enabled {
		defer d.enter("reg_mr")()
	}
	if len(buf) == 0 {
		return nil, fail("reg_mr", syscall.EINVAL, "empty buffer")
	}
	s, err := d.regions.Share(buf, fd)
	if err != nil {
		return nil, err
	}
	return s, nil
}
