package soft

import (
	"bytes"
	"fmt"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// lines are the lines of a device (verbs.Told). What is told is a packet of a kind of its own on
// the link that queue pairs have too, so that a line is made, moved to another wire and ended with
// its link.
type lines struct {
	d       *Device
	peers   map[wire.DeviceID]*line
	waiting []*line      // with messages to send; Device.telling reports whether there are any
	told    fifo[toldBy] // not polled yet
}

// line is what is kept of a peer while there is a line to it, or messages of it were not polled.
type line struct {
	peer     *wire.Address
	from     []byte    // peer, encoded
	link     wire.Link // nil: the line has ended
	out      [][]byte  // messages that the link has not taken yet; not empty: it is in lines.waiting
	unpolled int       // messages of the peer in lines.told
}

// toldBy is a message, or the end of a line.
type toldBy struct {
	verbs.Told
	line *line
}

const (
	mostUnpolled = 16 // messages of one peer in lines.told
	mostWaiting  = 16 // messages in line.out
)

// Reaches names the wire over which the device at addr is reached.
func (d *Device) Reaches(addr []byte) (string, error) {
	const op = "reaches"
	defer d.enter(op)()
	a, err := wire.DecodeAddress(addr)
	switch {
	case err != nil:
		return "", fail(op, syscall.EINVAL, err.Error())
	case a.ID == d.self.ID:
		return WireLoop, nil
	}
	return d.firstWire(op, a, func(w wire.Wire) error { return w.Reaches(a) })
}

// Identity implements verbs.Identifier.
func (d *Device) Identity(addr []byte) []byte { return wire.Identity(addr) }

// Tell sends a message to the device at to.
func (d *Device) Tell(to, msg []byte) error {
	const op = "tell"
	defer d.enter(op)()
	a, err := wire.DecodeAddress(to)
	switch {
	case d.closed:
		return fail(op, syscall.EBADF, "the device is closed")
	case err != nil:
		return fail(op, syscall.EINVAL, err.Error())
	case a.ID == d.self.ID:
		return fail(op, syscall.EINVAL, "a device does not tell itself")
	case len(msg) == 0 || len(msg) > verbs.MaxTell:
		return fail(op, syscall.EINVAL, fmt.Sprintf("a message of %d bytes: use 1 to %d", len(msg), verbs.MaxTell))
	}
	n, err := d.lines.to(a, to)
	if err != nil {
		return err
	}
	if len(n.out) == mostWaiting {
		return fail(op, syscall.ENOBUFS, fmt.Sprintf("%d messages wait to be sent to rank %d: poll, and tell again", mostWaiting, a.Rank))
	}
	if n.out != nil || !d.lines.send(n, msg) {
		d.lines.wait(n, msg)
	}
	if d.armed {
		d.posted()
	}
	return nil
}

// Carried returns the Config.Carried of the device with an address.
func (d *Device) Carried(addr []byte) ([]byte, error) {
	a, err := wire.DecodeAddress(addr)
	if err != nil {
		return nil, fail("reaches", syscall.EINVAL, err.Error())
	}
	return []byte(a.Carried), nil
}

// PollTold takes the oldest message, or end of a line.
func (d *Device) PollTold() (verbs.Told, bool) {
	if invariant.Enabled {
		defer d.enter("poll_told")()
	}
	s := &d.lines
	if s.told.len() == 0 {
		return verbs.Told{}, false
	}
	t := *s.told.front()
	s.told.pop()
	if t.Msg != nil {
		t.line.unpolled--
		s.dropIdle(t.line)
	}
	return t.Told, true
}

// to returns the line to the device at a, encoded to, which it makes if there is none.
func (s *lines) to(a *wire.Address, to []byte) (*line, error) {
	n := s.peers[a.ID]
	if n == nil || n.link == nil {
		l, _, err := s.d.linkTo("tell", a)
		if err != nil {
			return nil, err
		}
		n = s.begin(l)
	}
	if !bytes.Equal(n.from, to) {
		return nil, fail("tell", syscall.EHOSTUNREACH, fmt.Sprintf("the device of that identity is rank %d's, at another address", n.peer.Rank))
	}
	return n, nil
}

// begin makes a line of a link.
func (s *lines) begin(l wire.Link) *line {
	a := l.Peer()
	n := s.peers[a.ID]
	if n == nil {
		n = &line{}
		s.peers[a.ID] = n
	}
	if n.link != l {
		n.peer, n.from, n.link = a, a.Encode(), l
	}
	return n
}

// send sends a message on the link of a line. It returns false if there is no room.
func (s *lines) send(n *line, msg []byte) bool {
	d := s.d
	d.scratch = wire.Header{Op: wire.OpTell, Flags: wire.FlagFirst | wire.FlagLast, Length: uint32(len(msg)), Total: uint64(len(msg))}
	if !n.link.Send(&d.scratch, nil, msg) {
		return false
	}
	d.dirty = true
	return true
}

// wait keeps a message until there is room.
func (s *lines) wait(n *line, msg []byte) {
	if n.out == nil {
		s.waiting = append(s.waiting, n)
		s.d.telling = true
	}
	n.out = append(n.out, slices.Clone(msg))
}

// waits reports whether messages wait for room on a link.
func (s *lines) waits(l wire.Link) bool {
	return slices.ContainsFunc(s.waiting, func(n *line) bool { return n.link == l })
}

// pump sends what waits, as far as there is room.
func (s *lines) pump() {
	s.waiting = slices.DeleteFunc(s.waiting, func(n *line) bool {
		for len(n.out) > 0 {
			if !s.send(n, n.out[0]) {
				return false
			}
			n.out = n.out[1:]
		}
		n.out = nil
		return true
	})
	s.d.telling = len(s.waiting) > 0
}

// receive receives an OpTell, of which nothing can be trusted.
func (s *lines) receive(l wire.Link, h *wire.Header, payload []byte) {
	if h.QPN != 0 || len(payload) != int(h.Length) || len(payload) == 0 || len(payload) > verbs.MaxTell {
		s.d.violation(l, "a message of %d bytes, of which it says that they are %d, is told to queue pair %d", len(payload), h.Length, h.QPN)
		return
	}
	a := l.Peer()
	n := s.peers[a.ID]
	if n != nil && n.link != nil && n.link != l {
		old := n.link
		old.Close()
		s.d.linkDown(old, fmt.Errorf("rank %d has given it up and made another one: %w", a.Rank, verbs.ErrPeerClosed))
		n = s.peers[a.ID]
	}
	if n != nil && n.unpolled == mostUnpolled {
		s.d.violation(l, "tells more than %d messages that the program has not polled", mostUnpolled)
		return
	}
	n = s.begin(l)
	n.unpolled++
	s.add(toldBy{verbs.Told{From: n.from, Msg: slices.Clone(payload)}, n})
}

// add is for PollTold, and wakes the program if it may sleep.
func (s *lines) add(t toldBy) {
	s.told.push(t)
	if s.d.armed {
		s.d.sleeper().Wake()
	}
}

// end ends the line of a link.
func (s *lines) end(l wire.Link, err error) {
	n := s.peers[l.Peer().ID]
	if n == nil || n.link != l {
		return
	}
	n.link = nil
	if n.out != nil {
		n.out = nil
		s.waiting = slices.DeleteFunc(s.waiting, func(w *line) bool { return w == n })
		s.d.telling = len(s.waiting) > 0
	}
	s.add(toldBy{verbs.Told{From: n.from, Err: err}, n})
	s.dropIdle(n)
}

// dropIdle forgets a peer of which there is nothing to remember.
func (s *lines) dropIdle(n *line) {
	if n.link == nil && n.unpolled == 0 {
		delete(s.peers, n.peer.ID)
	}
}

// move gives the line of a link that has carried nothing another link.
func (s *lines) move(from, to wire.Link) {
	if n := s.peers[from.Peer().ID]; n != nil && n.link == from {
		n.link = to
	}
}

// close sends what there is room for, and forgets everything.
func (s *lines) close() {
	s.pump()
	*s = lines{d: s.d}
	s.d.telling = false
}

// count is how many lines have not ended.
func (s *lines) count() (k int) {
	for _, n := range s.peers {
		if n.link != nil {
			k++
		}
	}
	return k
}
