package rendezvous

import "net/netip"

// NewLocal returns the n ranks of a job inside this process.
func NewLocal(n int) []*Endpoint {
	h, secret := newHub(n, fanOut), NewSecret("made in this process")
	list := make([]*Endpoint, n)
	for r := range n {
		j := Job{Launcher: "local", Rank: r, Size: n, LocalRank: r, LocalSize: n}
		list[r] = j.inside(h, secret)
	}
	return list
}

// Alone is a job of one rank, which needs no listener.
func (j *Job) Alone(sec Secret) *Endpoint {
	if sec.Bytes == nil {
		sec = NewSecret("made by this process, a job of one rank")
	}
	return j.inside(newHub(1, fanOut), sec)
}

// inside joins a rank in the hub's own process.
func (j *Job) inside(h *hub, sec Secret) *Endpoint {
	e := j.endpoint(sec, Loopback)
	e.up = &localLink{h, j.Rank}
	h.join(j.Rank, localMember{e})
	return e
}

// Loopback is the address of a host for itself.
var Loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// localLink is the uplink of a rank in the hub's process.
type localLink struct {
	hub  *hub
	rank int
}

func (l *localLink) send(m message) error {
	if !l.hub.handle(l.rank, m) {
		return Errorf(ErrProtocol, "%v out of turn", m.kind())
	}
	return nil
}

func (l *localLink) fenced() {}

func (l *localLink) close(finished bool) error { return l.send(&byeMsg{finished}) }

// localMember is the hub's connection to such a rank.
type localMember struct{ e *Endpoint }

func (m localMember) deliver(msg message) { m.e.deliver(msg) }
func (m localMember) where() string       { return "this process" }
func (m localMember) local() netip.Addr   { return netip.Addr{} }
func (localMember) relay() netip.AddrPort { return netip.AddrPort{} }
