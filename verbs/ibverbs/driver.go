package ibverbs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// Environment variables, see the package's documentation.
const (
	portVariable = "TAGMATCH_RDMA_PORT"
	gidVariable  = "TAGMATCH_RDMA_GID"
)

// deviceName is the name of the only device, on all hosts.
const deviceName = "rdma"

type driver struct{}

func init() { verbs.Register(driver{}) }

func (driver) Name() string { return "ibverbs" }

// Devices returns rdma where this host has an active port.
func (driver) Devices() ([]string, error) {
	p, err := choose(os.Getenv(portVariable))
	if err != nil {
		return nil, err
	}
	return []string{deviceName}, p.close()
}

// EagerLimit is lower than that of the software device: a message of more bytes is worth two more
// packets, and each receive has a buffer of so many.
func (driver) EagerLimit(string) int { return 8 << 10 }

func (driver) Open(name string, cfg verbs.DriverConfig) (verbs.Device, error) {
	if name != deviceName {
		return nil, fail("open_device", syscall.ENODEV, fmt.Sprintf("driver ibverbs has one device, %s, not %q: %s says which port that is", deviceName, name, portVariable))
	}
	return open(os.Getenv(portVariable), cfg)
}

// open opens the device of a port, see choose.
func open(v string, cfg verbs.DriverConfig) (verbs.Device, error) {
	p, err := choose(v)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(p, cfg)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return d, nil
}

// port is a port of an opened device.
type port struct {
	lib  *library
	ctx  uintptr // struct ibv_context
	name string  // of the device: "mlx5_0"
	num  uint8   // of the port, from 1; 0: not chosen yet
	mem  *mapping
}

func (p *port) context() *abi.Context { return at[abi.Context](p.ctx) }

func (p *port) close() error {
	return errors.Join(status("close_device", p.lib.closeDevice, p.ctx), p.mem.free())
}

// String is the port as TAGMATCH_RDMA_PORT names it.
func (p *port) String() string { return fmt.Sprintf("%s:%d", p.name, p.num) }

// choose opens the device that v, the value of TAGMATCH_RDMA_PORT, names, or the first one that has
// an active port.
func choose(v string) (*port, error) {
	name, num, err := parsePort(v)
	if err != nil {
		return nil, err
	}
	lib, devs, free, err := devices()
	if err != nil {
		return nil, err
	}
	defer free()
	var there []string
	var errs []error
	for _, dev := range devs {
		d := at[abi.Device](dev)
		devName := text(d.Name[:])
		if d.TransportType != abi.TransportIB {
			there = append(there, devName+" (neither InfiniBand nor RoCE)")
			continue
		}
		there = append(there, devName)
		if name != "" && name != devName {
			continue
		}
		p, err := openPort(lib, dev, devName, num)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, fail("open_device", syscall.ENODEV, fmt.Sprintf("%s is %q: this host has %s", portVariable, v, strings.Join(there, ", ")))
	}
	return nil, errors.Join(errs...)
}

// parsePort returns "" and 0 for any.
func parsePort(v string) (device string, num uint8, err error) {
	device, n, ok := strings.Cut(v, ":")
	if !ok {
		return device, 0, nil
	}
	k, err := strconv.ParseUint(n, 10, 8)
	if err != nil || k == 0 || device == "" {
		return "", 0, fail("open_device", syscall.EINVAL, fmt.Sprintf("%s is %q: write a device, or a device and the number of its port, as in mlx5_0:1", portVariable, v))
	}
	return device, uint8(k), nil
}

// devices returns libibverbs and its list of devices, which are there until free is called.
func devices() (lib *library, list []uintptr, free func(), err error) {
	const op = "get_device_list"
	if lib, err = theLibrary(); err != nil {
		return nil, nil, nil, err
	}
	m, err := newMapping()
	if err != nil {
		return nil, nil, nil, err
	}
	array, errno := call(lib.getDeviceList, addr(&m.count))
	count := m.count
	free = func() { _, _ = call(lib.freeDeviceList, array) }
	if err := m.free(); err != nil {
		return nil, nil, nil, err
	}
	switch {
	case array == 0 && errno != syscall.ENOSYS:
		return nil, nil, nil, fail(op, errno, "")
	case array == 0:
		return nil, nil, nil, fail(op, errno, "no RDMA devices: the kernel module ib_uverbs is not loaded")
	case count == 0:
		free()
		return nil, nil, nil, fail(op, syscall.ENODEV, "no RDMA devices: neither a NIC with its kernel driver and provider, nor soft-RoCE (rdma link add rxe0 type rxe netdev eth0)")
	}
	return lib, pointers(array, count), free, nil
}

// openPort opens a device, if its port num is active, or any for 0.
func openPort(lib *library, dev uintptr, name string, num uint8) (*port, error) {
	p, err := openDevice(lib, dev, name)
	if err != nil {
		return nil, err
	}
	if err := p.find(num); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// openDevice opens a device, of which no port is chosen yet.
func openDevice(lib *library, dev uintptr, name string) (*port, error) {
	ctx, errno := call(lib.openDevice, dev)
	if ctx == 0 {
		return nil, cannotOpen(name, "/dev/infiniband/"+text(at[abi.Device](dev).DevName[:]), errno)
	}
	m, err := newMapping()
	if err != nil {
		return nil, errors.Join(err, status("close_device", lib.closeDevice, ctx))
	}
	return &port{lib: lib, ctx: ctx, name: name, mem: m}, nil
}

// cannotOpen is why a device is not opened, whose node in the file system is that. Where the user
// has no right to it libibverbs looks for it elsewhere, in vain, and so says ENOENT.
func cannotOpen(name, node string, errno syscall.Errno) error {
	if errno == syscall.ENOENT {
		f, err := os.OpenFile(node, os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		if errors.Is(err, syscall.EACCES) {
			errno = syscall.EACCES
		}
	}
	detail := "device " + name
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		detail += ": this user may not open " + node + ", see its group and mode"
	case syscall.ENOENT:
		detail += ": " + node + " is not here, as in a container that was not given it"
	}
	return fail("open_device", errno, detail)
}

// find chooses port num, or the first active one for 0.
func (p *port) find(num uint8) error {
	attr, err := p.queryDevice()
	if err != nil {
		return err
	}
	most := attr.Orig.PhysPortCnt
	if num > most {
		return fail("query_port", syscall.EINVAL, fmt.Sprintf("%s is %s:%d: the ports of %s are 1 to %d", portVariable, p.name, num, p.name, most))
	}
	first, last := max(num, 1), most
	if num != 0 {
		last = num
	}
	var states []string
	for p.num = first; p.num <= last; p.num++ {
		if err := p.query(); err != nil {
			return err
		}
		if p.mem.port.State == abi.PortActive {
			return nil
		}
		states = append(states, p.state())
	}
	return fail("query_port", syscall.ENETDOWN, strings.Join(states, ", ")+": see rdma link, and the cable or network interface")
}

// state says in which state the port is.
func (p *port) state() string {
	a := &p.mem.port
	s := fmt.Sprintf("port %v is %s", p, cmp.Or(portStates[a.State], "in an unknown state"))
	if a.State == abi.PortInit && a.LinkLayer == abi.LinkLayerInfiniBand {
		s += ", which waits for the fabric's subnet manager"
	}
	return s
}

// queryDevice asks for the device's attributes, which are valid until the mapping is used again.
func (p *port) queryDevice() (*abi.DeviceAttrEx, error) {
	a := &p.mem.device
	op := p.context().Op(queryDeviceEx)
	if op == 0 {
		return nil, p.tooOld("query_device")
	}
	return a, p.named(status("query_device", op, p.ctx, 0, addr(a), sizeof(a)), "")
}

// query asks for the attributes of port num.
func (p *port) query() error {
	op := p.context().Op(queryPort)
	if op == 0 {
		return p.tooOld("query_port")
	}
	return p.named(status("query_port", op, p.ctx, uintptr(p.num), addr(&p.mem.port), sizeof(&p.mem.port)), "")
}

func (p *port) tooOld(op string) error {
	return fail(op, syscall.EOPNOTSUPP, "the provider of "+p.name+" is too old, use rdma-core 32 or later")
}
