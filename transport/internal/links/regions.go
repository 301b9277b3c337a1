package links

import (
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// regions divides the device's memory regions among send buffers. Each peer has some of its own; of
// the common ones it may hold at most as many as are left. So a peer that does not receive gets
// half of them, the next one half of the rest, and there are always some for a peer that does
// receive.
type regions struct {
	own    int     // regions reserved for each peer
	common int     // regions that are left of those that are for all
	live   int     // regions that all peers have
	free   *region // objects to be reused, linked by next
}

// maxOwn bounds regions.own.
const maxOwn = 64

// init leaves an eighth of the regions to reads and receives, which must continue when sends have
// taken all of theirs: else the rank would neither send nor receive.
func (o *regions) init(total, peers int) {
	total -= total / 8
	o.own = min(maxOwn, total/2/peers)
	o.common = total - o.own*peers
}

// room reports whether a peer may have one more.
func (o *regions) room(p *peer) bool {
	return p.registered < o.own || p.registered-o.own < o.common
}

// take counts another region of a peer.
func (o *regions) take(p *peer) {
	if p.registered >= o.own {
		o.common--
	}
	p.registered++
	o.live++
}

// give counts a region of a peer that is free again.
func (o *regions) give(p *peer) {
	p.registered--
	o.live--
	if p.registered >= o.own {
		o.common++
	}
}

// region is a registered send buffer, the transport.Region that Register returns.
type region struct {
	verbs.MR // nil: free
	l        *Links
	p        *peer   // that it counts for; nil: free
	next     *region // while free
}

// Register makes buf readable for a peer (in fact for all). An empty buffer needs no registration.
// ErrAgain: the peer has its share of the regions, or the device has no memory until sends or reads
// end.
func (l *Links) Register(to int, buf []byte) (transport.Region, error) {
	if uint(to) >= uint(len(l.peers)) {
		return nil, errRank(to, len(l.peers))
	}
	if len(buf) == 0 {
		return noRegion{}, nil
	}
	p := l.peer(to)
	if !l.regions.room(p) {
		return nil, transport.ErrAgain
	}
	mr, err := l.pd.RegMR(buf, verbs.AccessRemoteRead)
	if err != nil {
		return nil, l.unregistered(len(buf), err)
	}
	r := l.regions.free
	if r == nil {
		r = &region{l: l}
	} else {
		l.regions.free, r.next = r.next, nil
	}
	r.MR, r.p = mr, p
	l.regions.take(p)
	return r, nil
}

// Dereg implements transport.Region; the object is then reused.
func (r *region) Dereg() error {
	r.checkDereg()
	err := r.MR.Dereg()
	o := &r.l.regions
	o.give(r.p)
	r.MR, r.p = nil, nil
	r.next, o.free = o.free, r
	return err
}

// noRegion is the region of an empty buffer.
type noRegion struct{}

func (noRegion) Addr() uint64 { return 0 }
func (noRegion) RKey() uint32 { return 0 }
func (noRegion) Dereg() error { return nil }
