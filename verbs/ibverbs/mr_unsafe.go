package ibverbs

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// domain is a protection domain.
type domain struct {
	d   *device
	obj uintptr // struct ibv_pd; 0: it is gone
}

// AllocPD makes a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	if d.closed {
		return nil, errClosed("alloc_pd")
	}
	obj, err := d.created(object("alloc_pd", d.lib.allocPD, d.ctx))
	if err != nil {
		return nil, d.named(err, "")
	}
	p := &domain{d, obj}
	d.domains = append(d.domains, p)
	return p, nil
}

func errDeallocated(op string) error {
	return fail(op, syscall.EINVAL, "the protection domain is deallocated")
}

// Dealloc takes the domain from shared memory without parts.
func (p *domain) Dealloc() error {
	for _, s := range p.d.shares {
		if s.parts == 0 {
			if err := s.leave(p); err != nil {
				return err
			}
		}
	}
	err := p.d.destroy("dealloc_pd", p.d.lib.deallocPD, &p.obj)
	if err == nil {
		p.d.domains = slices.DeleteFunc(p.d.domains, func(o *domain) bool { return o == p })
	}
	return err
}

// destroy destroys the object at *obj, which is 0 then.
func (d *device) destroy(op string, fn uintptr, obj *uintptr) error {
	if *obj == 0 {
		return fail(op, syscall.EINVAL, "it is destroyed already")
	}
	err := status(op, fn, *obj)
	if errnoOf(err) == syscall.EIO && d.async.gone.Load() {
		err = nil // the kernel has destroyed what it had of a device that is gone
	}
	if err = d.destroyed(err); err != nil {
		return d.named(err, "")
	}
	*obj = 0
	return nil
}

// region is a memory region. It holds its memory, and pins it: C knows the address until Dereg.
type region struct {
	d          *device
	obj        uintptr // struct ibv_mr; 0: it is gone
	lkey, rkey uint32
	buf        []byte
	pin        *runtime.Pinner
}

// RegMR registers memory, by a system call unless it lies in shared memory.
func (p *domain) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	const op = "reg_mr"
	const writes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	switch {
	case p.obj == 0:
		return nil, errDeallocated(op)
	case len(buf) == 0:
		return nil, fail(op, syscall.EINVAL, "a region has at least a byte")
	case access&writes != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, fail(op, syscall.EINVAL, "AccessRemoteWrite and AccessRemoteAtomic need AccessLocalWrite")
	}
	if r := p.part(buf, access); r != nil {
		return r, nil
	}
	r, err := p.register(buf, access)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// register makes a region, which the kernel knows.
func (p *domain) register(buf []byte, access verbs.AccessFlags) (*region, error) {
	const op = "reg_mr"
	pin := &runtime.Pinner{}
	pin.Pin(unsafe.SliceData(buf))
	obj, err := p.d.created(object(op, p.d.lib.regMR, p.obj, start(buf), uintptr(len(buf)), uintptr(access)))
	if err != nil {
		pin.Unpin()
		return nil, p.d.named(err, fmt.Sprintf("a region of %d bytes", len(buf)))
	}
	m := at[abi.MR](obj)
	r := &region{d: p.d, obj: obj, lkey: m.LKey, rkey: m.RKey, buf: buf, pin: pin}
	p.d.regions[r] = struct{}{}
	return r, nil
}

func (r *region) LKey() uint32 { return r.lkey }
func (r *region) RKey() uint32 { return r.rkey }
func (r *region) Addr() uint64 { return uint64(start(r.buf)) }
func (r *region) Len() int     { return len(r.buf) }

// Dereg returns when the device does not access the memory any more.
func (r *region) Dereg() error {
	err := r.d.destroy("dereg_mr", r.d.lib.deregMR, &r.obj)
	if err == nil {
		r.pin.Unpin()
		delete(r.d.regions, r)
		r.lkey, r.rkey = 0, 0
	}
	return err
}
