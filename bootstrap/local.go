package bootstrap

import "net/netip"

// NewLocal returns n Bootstraps, the ranks of a job inside this process, for tests and simulations.
// Close each; no Close waits for the others.
func NewLocal(n int) []Bootstrap {
	return newLocal(n, "local", madeSecret("made in this process"))
}

func newLocal(n int, launcher string, secret jobSecret) []Bootstrap {
	h := newHub(n, fanOut)
	list := make([]Bootstrap, n)
	for r := range n {
		e := newEndpoint(r, n, Info{LocalRank: r, LocalSize: n, LocalIP: loopback, Launcher: launcher,
			Secret: secret.bytes, SecretOrigin: secret.origin})
		e.up = &localLink{hub: h, rank: r}
		h.join(r, localMember{e})
		list[r] = e
	}
	return list
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// localLink is the uplink of a rank in the hub's process.
type localLink struct {
	hub  *hub
	rank int
}

func (l *localLink) send(m message) error {
	if !l.hub.handle(l.rank, m) {
		return errorf(ErrProtocol, "%v out of turn", m.kind())
	}
	return nil
}

func (l *localLink) fenced() {}

func (l *localLink) close() error { return l.send(&byeMsg{}) }

// localMember is the hub's connection to such a rank.
type localMember struct{ e *endpoint }

func (m localMember) deliver(msg message) { m.e.deliver(msg) }
func (m localMember) where() string       { return "this process" }
func (m localMember) local() netip.Addr   { return netip.Addr{} }
func (localMember) relay() netip.AddrPort { return netip.AddrPort{} }
