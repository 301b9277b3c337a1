package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
)

// Transport joins several transports. See package transport for its methods.
type Transport struct {
	guard invariant.Guard       // has no size without -tags invariants, unless it is the last field
	paths []transport.Transport // best first
	route []transport.Transport // by rank; nil: not connected
	tags  *tagList
	wait  waits
	turn  int // index of the path that is polled first
}

// MaxPaths is the most transports that can be joined.
const MaxPaths = 8

// New joins the transports that open creates, best first; all ranks must name the same kinds in the
// same order. Each gets the sink. Close closes them, and so does New if a later one cannot be
// opened.
func New(size int, sink transport.Sink, open ...func(transport.Sink) (transport.Transport, error)) (*Transport, error) {
	if len(open) == 0 || len(open) > MaxPaths {
		return nil, fmt.Errorf("transport/mux: %d transports: 1 to %d can be joined", len(open), MaxPaths)
	}
	t := &Transport{route: make([]transport.Transport, size)}
	for _, f := range open {
		tr, err := f(sink)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.paths = append(t.paths, tr)
		if list := tr.TagList(); list != nil && t.tags == nil {
			t.tags = &tagList{TagList: list, t: t, path: tr}
		}
	}
	t.wait.init(t.paths)
	return t, nil
}

// Caps are the capabilities that all paths have, and what helps on one.
func (t *Transport) Caps() transport.Caps {
	c := t.paths[0].Caps()
	devices := []string{c.Device}
	for _, p := range t.paths[1:] {
		o := p.Caps()
		devices = append(devices, o.Device)
		c.MaxEager, c.MaxCtrl, c.MaxHdr = min(c.MaxEager, o.MaxEager), min(c.MaxCtrl, o.MaxCtrl), min(c.MaxHdr, o.MaxHdr)
		c.MaxRead = min(c.MaxRead, o.MaxRead)
		c.Revoke = c.Revoke && o.Revoke
	}
	c.Device = strings.Join(devices, ",")
	return c
}

// The encoding of an address: magic with the version in its last byte, the number of paths, and for
// each path its address prefixed by its length (4 bytes, little-endian).
const addressMagic = "TMM\x01"

// Address is what the peers pass to Connect.
func (t *Transport) Address() []byte {
	b := append([]byte(addressMagic), byte(len(t.paths)))
	for _, p := range t.paths {
		a := p.Address()
		b = binary.LittleEndian.AppendUint32(b, uint32(len(a)))
		b = append(b, a...)
	}
	return b
}

// decodeAddress splits a peer's address into those of its paths.
func decodeAddress(b []byte) ([][]byte, error) {
	const fixed = len(addressMagic) + 1
	const v = len(addressMagic) - 1
	switch {
	case len(b) < fixed || string(b[:v]) != addressMagic[:v]:
		return nil, errors.New("not an address of several devices: give all ranks the same devices")
	case b[v] != addressMagic[v]:
		return nil, fmt.Errorf("an address of version %d, this rank knows version %d: run the same build of the program on all ranks", b[v], addressMagic[v])
	}
	list := make([][]byte, 0, MaxPaths)
	n := int(b[v+1])
	for b = b[fixed:]; len(list) < n && len(b) >= 4; {
		size := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(size) > uint64(len(b)) {
			break
		}
		list = append(list, b[:size:size])
		b = b[size:]
	}
	if len(list) != n || len(b) != 0 {
		return nil, errors.New("an address of a wrong length")
	}
	return list, nil
}

// Connect says how a rank is reached: over the first path that can.
func (t *Transport) Connect(peer int, addr []byte) error {
	if invariant.Enabled {
		defer t.enter("Connect")()
	}
	if uint(peer) >= uint(len(t.route)) {
		return fmt.Errorf("transport/mux: connect rank %d: the job has %d ranks", peer, len(t.route))
	}
	if t.route[peer] != nil {
		return fmt.Errorf("transport/mux: connect rank %d: it is connected already", peer)
	}
	list, err := decodeAddress(addr)
	if err == nil && len(list) != len(t.paths) {
		err = fmt.Errorf("it has %d devices, this rank %d: give all ranks the same", len(list), len(t.paths))
	}
	if err != nil {
		return fmt.Errorf("transport/mux: connect rank %d: %w", peer, err)
	}
	var errs []error
	for i, p := range t.paths {
		if err := p.Connect(peer, list[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		t.route[peer] = p
		return nil
	}
	return errors.Join(errs...)
}

// Wire names the wire to a rank.
func (t *Transport) Wire(peer int) string { return t.to(peer).Wire(peer) }

// enter begins a call by the transport's owner. It checks only what the paths share.
func (t *Transport) enter(call string) (leave func()) {
	t.guard.Enter("transport/mux: " + call)
	return t.guard.Leave
}

// to returns the path to a rank: the first for one that is not connected, which refuses to send.
func (t *Transport) to(peer int) transport.Transport {
	if invariant.Enabled {
		defer t.enter("a call for a rank")()
	}
	if uint(peer) < uint(len(t.route)) && t.route[peer] != nil {
		return t.route[peer]
	}
	return t.paths[0]
}

// SendEager sends a tagged message.
func (t *Transport) SendEager(peer int, appCtx uint32, tag uint64, payload []byte) error {
	return t.to(peer).SendEager(peer, appCtx, tag, payload)
}

// SendEagers sends several tagged messages.
func (t *Transport) SendEagers(peer int, appCtx uint32, msgs []transport.Eager) int {
	return t.to(peer).SendEagers(peer, appCtx, msgs)
}

// SendRndv sends a rendezvous request.
func (t *Transport) SendRndv(peer int, h *transport.RndvHdr) error {
	return t.to(peer).SendRndv(peer, h)
}

// SendFin tells the sender of a rendezvous that its buffer was read.
func (t *Transport) SendFin(peer int, appCtx uint32) error { return t.to(peer).SendFin(peer, appCtx) }

// SendCtrl sends a control message.
func (t *Transport) SendCtrl(peer int, msg []byte) error { return t.to(peer).SendCtrl(peer, msg) }

// Register makes buf readable for one rank.
func (t *Transport) Register(peer int, buf []byte) (transport.Region, error) {
	return t.to(peer).Register(peer, buf)
}

// Read copies from a peer's memory.
func (t *Transport) Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) error {
	return t.to(peer).Read(peer, dst, va, rkey, id)
}

// Abandon releases the destination of reads.
func (t *Transport) Abandon(peer int, id uint64) bool { return t.to(peer).Abandon(peer, id) }

// Disconnect ends the connection to a rank.
func (t *Transport) Disconnect(peer int, err error) { t.to(peer).Disconnect(peer, err) }

// Grant stores a cumulative count of credit at the peer.
func (t *Transport) Grant(peer int, total uint64) error { return t.to(peer).Grant(peer, total) }

// Granted reads the cell that the peer writes at this rank.
func (t *Transport) Granted(peer int) uint64 { return t.to(peer).Granted(peer) }

// Poll polls all paths, in rotating order.
func (t *Transport) Poll() (int, error) {
	if invariant.Enabled {
		defer t.enter("Poll")()
	}
	n := 0
	var errs error
	t.turn++
	for i := range t.paths {
		k, err := t.paths[(t.turn+i)%len(t.paths)].Poll()
		n += k
		if err != nil {
			errs = errors.Join(errs, err)
		}
	}
	return n, errs
}

// Enough lets the Poll under way end soon.
func (t *Transport) Enough() {
	for _, p := range t.paths {
		p.Enough()
	}
}

// Drained reports whether everything posted so far has reached the peers' devices.
func (t *Transport) Drained() bool {
	for _, p := range t.paths {
		if !p.Drained() {
			return false
		}
	}
	return true
}

// TagList is the tag list of the first path that has one.
func (t *Transport) TagList() transport.TagList {
	if t.tags == nil {
		return nil
	}
	return t.tags
}

// Close ends all connections.
func (t *Transport) Close() error {
	var errs []error
	for _, p := range t.paths {
		errs = append(errs, p.Close())
	}
	t.wait.close()
	return errors.Join(errs...)
}

// tagList is the list of one path.
type tagList struct {
	transport.TagList
	t    *Transport
	path transport.Transport
}

// Covers reports whether a rank's messages arrive over the path with the list.
func (l *tagList) Covers(rank int) bool {
	return uint(rank) < uint(len(l.t.route)) && l.t.route[rank] == l.path
}

var _ transport.Transport = (*Transport)(nil)
