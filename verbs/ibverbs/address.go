package ibverbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// location is where packets find a port: what the address of its device carries.
type location struct {
	link uint8 // abi.LinkLayerInfiniBand or abi.LinkLayerEthernet
	grh  bool  // each packet needs a GID
	mtu  verbs.MTU
	gid  [16]byte
	lid  uint16
}

const (
	locationVersion = 1
	locationSize    = 1 + 1 + 1 + 1 + 16 + 2
)

// encode returns the version, link layer, MTU, whether a GID is needed, the GID, and the LID, which
// is little-endian.
func (l *location) encode() []byte {
	b := []byte{locationVersion, l.link, byte(l.mtu), 0}
	if l.grh {
		b[3] = 1
	}
	b = append(b, l.gid[:]...)
	return binary.LittleEndian.AppendUint16(b, l.lid)
}

func decodeLocation(b []byte) (l location, err error) {
	switch {
	case len(b) != locationSize:
		return l, fmt.Errorf("an address of a device that is no RDMA device: its port has %d bytes, not %d", len(b), locationSize)
	case b[0] != locationVersion:
		return l, fmt.Errorf("an RDMA address of version %d, this rank knows version %d: run the same build of the program on all ranks", b[0], locationVersion)
	}
	l = location{link: b[1], mtu: verbs.MTU(b[2]), grh: b[3] != 0, gid: [16]byte(b[4:20]), lid: binary.LittleEndian.Uint16(b[20:])}
	if l.link != abi.LinkLayerInfiniBand && l.link != abi.LinkLayerEthernet || l.mtu < verbs.MTU256 || l.mtu > verbs.MTU4096 {
		return l, fmt.Errorf("an RDMA address with link layer %d and MTU %d", l.link, l.mtu)
	}
	return l, nil
}

// wire is over what the two reach each other; the error says why they do not, as far as their
// locations tell.
func (l *location) wire(to *location) (string, error) {
	switch {
	case l.link != to.link:
		return "", fmt.Errorf("one port is InfiniBand, the other Ethernet: set %s on their hosts", portVariable)
	case l.link == abi.LinkLayerEthernet:
		return "roce", nil
	case [8]byte(l.gid[:8]) != [8]byte(to.gid[:8]):
		return "", fmt.Errorf("the ports are in InfiniBand subnets %x and %x: set %s on their hosts", l.gid[:8], to.gid[:8], portVariable)
	}
	return "infiniband", nil
}

// to is the address vector for packets from port num to a location, by the GID of that index.
func (l *location) to(to *location, num uint8, gidIndex uint32) abi.AHAttr {
	a := abi.AHAttr{DLID: to.lid, PortNum: num}
	if l.link == abi.LinkLayerEthernet || l.grh || to.grh {
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = 1, to.gid, uint8(gidIndex), 64
	}
	return a
}

// locate finds the location of a port, and the index of its GID.
func (p *port) locate() (l location, gidIndex uint32, err error) {
	const op = "query_gid"
	a := p.mem.port
	l = location{link: a.LinkLayer, grh: a.Flags&abi.PortGRHRequired != 0, mtu: verbs.MTU(a.ActiveMTU), lid: a.LID}
	first, last := uint32(0), uint32(max(a.GIDTblLen, 1)-1)
	v := os.Getenv(gidVariable)
	if v != "" {
		n, err := strconv.ParseUint(v, 10, 8)
		if err != nil || uint32(n) > last {
			return l, 0, fail(op, syscall.EINVAL, fmt.Sprintf("%s is %q: port %v has GIDs 0 to %d", gidVariable, v, p, last))
		}
		first, last = uint32(n), uint32(n)
	} else if l.link == abi.LinkLayerInfiniBand {
		last = 0
	}
	found := false
	for i := first; i <= last; i++ {
		g, err := p.gid(i)
		if err != nil {
			if errno := errnoOf(err); errno == syscall.ENODATA || errno == syscall.ENOENT || errno == syscall.EINVAL {
				continue // an empty entry
			}
			return l, 0, err
		}
		asked := v != "" || l.link == abi.LinkLayerInfiniBand
		if !asked && g.GIDType != abi.GIDTypeRoCEv2 {
			continue
		}
		ip4 := netip.AddrFrom16(g.GID).Is4In6()
		if !found || ip4 {
			l.gid, gidIndex, found = g.GID, i, true
		}
		if asked || ip4 {
			break
		}
	}
	if !found {
		return l, 0, fail(op, syscall.EADDRNOTAVAIL, p.noGID(v))
	}
	return l, gidIndex, nil
}

// noGID says which GID a port lacks, where v is the value of TAGMATCH_RDMA_GID.
func (p *port) noGID(v string) string {
	switch {
	case v != "":
		return fmt.Sprintf("%s is %s: port %v has no GID there", gidVariable, v, p)
	case p.mem.port.LinkLayer == abi.LinkLayerInfiniBand:
		return fmt.Sprintf("port %v has no GID 0", p)
	}
	return fmt.Sprintf("port %v has no RoCE v2 GID: give its network interface an IP address, or set %s", p, gidVariable)
}

// gid asks for entry i of the port's GIDs, which is valid until the next one.
func (p *port) gid(i uint32) (*abi.GIDEntry, error) {
	g := &p.mem.gid
	err := status("query_gid", p.lib.queryGIDEx, p.ctx, uintptr(p.num), uintptr(i), addr(g), 0, sizeof(g))
	return g, p.named(err, fmt.Sprintf("GID %d", i))
}
