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
	r, err := p.d.regions.Register(buf, access, &p.Domain)
	if err != nil {
		return nil, fail("reg_mr", syscall.ENOMEM, err.Error())
	}
	p.Users++
	return r, nil
}

// Share registers memory that the program goes on using for many transfers, of any protection
// domain: buf must not be moved or freed before Close. Within it further regions are registered as
// anywhere. fd is a memfd of exactly these pages, all of them allocated, whose size is sealed:
// peers on this host may then map the memory, and so read it without a copy by the kernel, and
// where the kernel lets them read no other memory; -1: there is none. The device does not close it.
//
// It fails with EEXIST where part of buf is shared already. Close of the result fails with EBUSY
// while regions lie in it. Calls belong to the device's owner.
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
