package ibverbs

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// Ports describes all ports of this host's RDMA devices. Of a device that cannot be opened it says
// why, in place of its ports.
func (driver) Ports() ([]verbs.Port, error) {
	lib, devs, free, err := devices()
	if err != nil {
		return nil, err
	}
	defer free()
	chosen := ""
	if p, err := choose(os.Getenv(portVariable)); err == nil {
		chosen = p.String()
		if err := p.close(); err != nil {
			return nil, err
		}
	}
	var out []verbs.Port
	for _, dev := range devs {
		name := text(at[abi.Device](dev).Name[:])
		ports, err := portsOf(lib, dev, name)
		if err != nil {
			ports = []verbs.Port{{Name: name, State: err.Error()}}
		}
		for _, p := range ports {
			p.Chosen = p.Name == chosen
			out = append(out, p)
		}
	}
	return out, nil
}

// portsOf describes the ports of a device.
func portsOf(lib *library, dev uintptr, name string) (out []verbs.Port, err error) {
	if at[abi.Device](dev).TransportType != abi.TransportIB {
		return nil, errors.New("it is neither InfiniBand nor RoCE")
	}
	p, err := openDevice(lib, dev, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	attr, err := p.queryDevice()
	if err != nil {
		return nil, err
	}
	most := attr.Orig.PhysPortCnt
	for p.num = 1; p.num <= most; p.num++ {
		if err := p.query(); err != nil {
			return nil, err
		}
		out = append(out, verbs.Port{Name: p.String(), State: p.describe()})
	}
	return out, nil
}

// portStates are the names of enum ibv_port_state.
var portStates = map[uint32]string{1: "down", abi.PortInit: "initialising", 3: "armed", abi.PortActive: "active"}

// describe describes the port that was queried.
func (p *port) describe() string {
	a := p.mem.port
	s := cmp.Or(portStates[a.State], fmt.Sprint("state ", a.State))
	switch a.LinkLayer {
	case abi.LinkLayerInfiniBand:
		s += fmt.Sprintf(", InfiniBand, LID %d", a.LID)
	case abi.LinkLayerEthernet:
		s += ", Ethernet"
	}
	s += fmt.Sprintf(", MTU %d", verbs.MTU(a.ActiveMTU).Bytes())
	l, index, err := p.locate()
	if err != nil {
		return s + ": " + err.Error()
	}
	return s + fmt.Sprintf(", GID %d: %v", index, netip.AddrFrom16(l.gid).Unmap())
}
