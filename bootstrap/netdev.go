package bootstrap

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
)

// virtual are the beginnings of the names of interfaces that connect containers or virtual machines
// of one host. Their addresses are the same on every host.
var virtual = []string{"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "lxc", "lxd", "podman", "vnet", "tun", "tap"}

// nic is an interface of this host.
type nic struct {
	name  string
	up    bool
	addrs []netip.Prefix
}

// hostAddresses are the addresses at which other hosts may reach this one, the likeliest first.
// netdev is the value of TAGMATCH_NETDEV.
func hostAddresses(netdev string) ([]netip.Addr, error) {
	list, err := nics()
	if err != nil {
		return nil, errorf(err, "the network interfaces of this host cannot be listed: %v", err)
	}
	return chooseAddresses(list, netdev)
}

// locals are the addresses that TAGMATCH_NETDEV names; nil: it is not set.
func (o *Options) locals() ([]netip.Addr, error) {
	netdev := o.Getenv(EnvNetdev)
	if netdev == "" {
		return nil, nil
	}
	return hostAddresses(netdev)
}

func nics() ([]nic, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []nic
	for _, i := range ifs {
		n := nic{name: i.Name, up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.addrs = append(n.addrs, p)
			}
		}
		list = append(list, n)
	}
	return list, nil
}

// chooseAddresses takes the addresses of the interfaces that netdev names, in its order: a comma
// list of names, addresses and prefixes such as 10.0.0.0/8. Where it is empty those of all that are
// up and lead to other hosts: IPv4 first, as it needs no configuration at the other end.
func chooseAddresses(list []nic, netdev string) ([]netip.Addr, error) {
	var chosen []netip.Addr
	if netdev == "" {
		for _, n := range list {
			if n.up && !isVirtual(n.name) {
				chosen = append(chosen, n.outside()...)
			}
		}
		slices.SortStableFunc(chosen, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
		if len(chosen) == 0 {
			chosen = []netip.Addr{rendezvous.Loopback} // of a host without a network: its ranks are all here
		}
		return chosen, nil
	}
	for _, want := range strings.Split(netdev, ",") {
		k := len(chosen)
		for _, n := range list {
			chosen = append(chosen, n.named(strings.TrimSpace(want))...)
		}
		if len(chosen) == k {
			return nil, configErrorf("%s is %q: no interface of this host that is up has the name, address or prefix %q (it has %s)",
				EnvNetdev, netdev, want, describe(list))
		}
	}
	return chosen, nil
}

func isVirtual(name string) bool {
	return slices.ContainsFunc(virtual, func(v string) bool { return strings.HasPrefix(name, v) })
}

// outside are the addresses that other hosts can use.
func (n *nic) outside() []netip.Addr {
	var list []netip.Addr
	for _, p := range n.addrs {
		if a := p.Addr().Unmap(); !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() {
			list = append(list, a)
		}
	}
	return list
}

// named are the addresses that an element of TAGMATCH_NETDEV names.
func (n *nic) named(want string) []netip.Addr {
	if !n.up {
		return nil
	}
	if want == n.name {
		var list []netip.Addr
		for _, p := range n.addrs {
			if a := p.Addr().Unmap(); !a.IsLinkLocalUnicast() {
				list = append(list, a)
			}
		}
		return list
	}
	within, err := netip.ParsePrefix(want)
	if a, errAddr := netip.ParseAddr(want); errAddr == nil {
		within, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	var list []netip.Addr
	for _, p := range n.addrs {
		if a := p.Addr().Unmap(); err == nil && within.Contains(a) {
			list = append(list, a)
		}
	}
	return list
}

// describe lists the interfaces that are up with their addresses, for error texts.
func describe(list []nic) string {
	var words []string
	for _, n := range list {
		if !n.up {
			continue
		}
		w := n.name
		for _, p := range n.addrs {
			w += " " + p.String()
		}
		words = append(words, w)
	}
	return strings.Join(words, ", ")
}
