package ibverbs

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// device is an opened port. Its address is that of its lines.
type device struct {
	*port
	here     location
	gidIndex uint32
	attr     verbs.DeviceAttr
	lines    *lines
	async    *asyncEvents
	objects  int // that exist: Close needs 0
	mu       sync.Mutex
	channels []*channel     // guarded by mu
	free     []*channelSlot // those of the mapping that no channel has
	qps      map[*queuePair]struct{}
	regions  map[*region]struct{} // not deregistered; a Pinner that is collected with pins panics
	domains  []*domain
	shares   []*share // few, in any order
	unused   []*part  // deregistered, to be used again
	srqs     uint32   // number of the newest SRQ
	logger   *slog.Logger
	closed   bool
}

var _ verbs.Identifier = (*device)(nil)

// newDevice makes a device of a port, which it closes with itself; not after an error.
func newDevice(p *port, cfg verbs.DriverConfig) (d *device, err error) {
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	d = &device{port: p, qps: map[*queuePair]struct{}{}, regions: map[*region]struct{}{}, logger: logger}
	if d.here, d.gidIndex, err = p.locate(); err != nil {
		return nil, err
	}
	if d.attr, err = p.limits(); err != nil {
		return nil, err
	}
	if d.attr.MaxInline, err = p.largestInline(); err != nil {
		return nil, err
	}
	for i := range p.mem.slots {
		d.free = append(d.free, &p.mem.slots[i])
	}
	if d.lines, err = openLines(d, cfg); err != nil {
		return nil, err
	}
	if d.async, err = startAsync(d); err != nil {
		return nil, errors.Join(err, d.lines.close())
	}
	logger.Info("RDMA device", "port", p.String(), "mtu", d.here.mtu.Bytes(), "gid index", d.gidIndex)
	return d, nil
}

// suits has many receives, since messages take them while the program computes: flow control counts
// bytes. A NIC's memory for each queue pair grows with its sends.
var suits = verbs.Suits{Receives: 2048, Sends: 64}

// limits are the limits of the device, but for the largest inline payload.
func (p *port) limits() (verbs.DeviceAttr, error) {
	a, err := p.queryDevice()
	if err != nil {
		return verbs.DeviceAttr{}, err
	}
	o := &a.Orig
	if o.MaxSRQ == 0 || o.MaxSRQSGE == 0 || o.MaxSGE == 0 {
		return verbs.DeviceAttr{}, p.named(fail("query_device", syscall.EOPNOTSUPP, "the device has no shared receive queues, which this library needs"), "")
	}
	tm, why, err := p.tagMatching(&a.TM)
	sges := int(min(o.MaxSGE, o.MaxSRQSGE, maxSGE)) // CreateSRQ refuses more than MaxSGE
	return verbs.DeviceAttr{
		MaxQP: int(o.MaxQP), MaxQPWR: int(o.MaxQPWR), MaxSGE: sges,
		MaxCQ: int(o.MaxCQ), MaxCQE: int(o.MaxCQE),
		MaxSRQ: int(o.MaxSRQ), MaxSRQWR: int(o.MaxSRQWR), SRQSGE: sges,
		MaxMR: int(o.MaxMR), MaxMsgSize: uint64(p.mem.port.MaxMsgSz),
		MaxQPRdAtom: int(min(o.MaxQPRdAtom, 255)), MaxQPInitRdAtom: int(min(o.MaxQPInitRdAtom, 255)),
		MaxMTU: verbs.MTU(p.mem.port.ActiveMTU),
		TM:     tm, NoTM: why, Suits: suits,
	}, err
}

// largestInline tries which inline payload a queue pair is granted, from the most on down.
func (p *port) largestInline() (int, error) {
	pd, err := object("alloc_pd", p.lib.allocPD, p.ctx)
	if err != nil {
		return 0, p.named(err, "")
	}
	cq, err := object("create_cq", p.lib.createCQ, p.ctx, 1, 0, 0, 0)
	if err != nil {
		return 0, errors.Join(p.named(err, "a queue of 1 completion"), status("dealloc_pd", p.lib.deallocPD, pd))
	}
	granted, refused := 0, syscall.Errno(0)
	for most := uint32(maxInline); most > 0 && granted == 0; most -= 32 {
		p.mem.qpInit = abi.QPInitAttr{SendCQ: cq, RecvCQ: cq, QPType: uint32(verbs.QPTRC),
			Cap: abi.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: most}}
		qp, errno := call(p.lib.createQP, pd, addr(&p.mem.qpInit))
		if refused = errno; qp != 0 {
			granted = int(min(p.mem.qpInit.Cap.MaxInlineData, maxInline))
			err = errors.Join(err, status("destroy_qp", p.lib.destroyQP, qp))
		}
	}
	if granted == 0 {
		err = errors.Join(err, p.named(fail("create_qp", refused, "no queue pair with an inline payload is made"), ""))
	}
	err = errors.Join(err, status("destroy_cq", p.lib.destroyCQ, cq), status("dealloc_pd", p.lib.deallocPD, pd))
	return granted, err
}

func (d *device) Name() string           { return deviceName }
func (d *device) Attr() verbs.DeviceAttr { return d.attr }

func errClosed(op string) error { return fail(op, syscall.EBADF, "the device is closed") }

// Close ends what runs for the device before it closes the context.
func (d *device) Close() error {
	switch {
	case d.closed:
		return fail("close_device", syscall.EINVAL, "it is closed already")
	case d.objects > 0:
		d.wake() // whoever waits for completions looks again
		return fail("close_device", syscall.EBUSY, fmt.Sprintf("the device has %d objects", d.objects))
	}
	d.closed = true
	return errors.Join(d.async.close(), d.lines.close(), d.port.close())
}

// Reaches tells by the two addresses.
func (d *device) Reaches(addr []byte) (string, error) {
	to, err := d.location("reaches", addr)
	if err != nil {
		return "", err
	}
	wire, err := d.here.wire(&to)
	if err == nil {
		_, err = d.lines.dev.Reaches(addr)
	}
	if err != nil {
		return "", fail("reaches", syscall.EHOSTUNREACH, err.Error())
	}
	return wire, nil
}

// location is that of the device with an address.
func (d *device) location(op string, addr []byte) (location, error) {
	carried, err := d.lines.dev.Carried(addr)
	if err != nil {
		return location{}, err
	}
	to, err := decodeLocation(carried)
	if err != nil {
		return location{}, fail(op, syscall.EINVAL, err.Error())
	}
	return to, nil
}

// created counts an object; its destruction calls destroyed.
func (d *device) created(p uintptr, err error) (uintptr, error) {
	if err == nil {
		d.objects++
	}
	return p, err
}

// destroyed counts what a call that destroys an object has done.
func (d *device) destroyed(err error) error {
	if err == nil {
		d.objects--
	}
	return err
}

// wake ends what waits for completions, since something else has come.
func (d *device) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.channels {
		c.Wake()
	}
}
