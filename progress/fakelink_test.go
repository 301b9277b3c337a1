package progress

import (
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/transport"
)

// fakeLink is a connection of a fakeNode to a peer: both ends send HELLO with their greeting, and
// post once they have the other's. One node connects to at most one peer in a poll.
type fakeLink struct {
	begun   bool // HELLO was sent
	up      bool
	cut     bool // by Disconnect
	refused int  // posts before it was up
}

func (n *fakeNode) Connect(int, []byte) error { return nil }

// readyLocked reports whether messages can be posted for a peer. If not the next polls connect to
// it.
func (n *fakeNode) readyLocked(peer int) bool {
	l := &n.links[peer]
	if !l.up {
		l.refused++
	}
	if !l.up && !l.cut && !slices.Contains(n.asked, peer) {
		n.asked = append(n.asked, peer)
		n.eventLocked()
	}
	return l.up
}

// helloLocked begins one of the connections that were asked for.
func (n *fakeNode) helloLocked() int {
	i := slices.IndexFunc(n.asked, func(peer int) bool { return !n.links[peer].begun && !n.links[peer].cut })
	if i < 0 {
		return 0
	}
	n.greetLocked(n.asked[i])
	return 1
}

func (n *fakeNode) greetLocked(peer int) {
	n.links[peer].begun = true
	n.net.mu.Unlock()
	hello := n.sink.Greeting(peer)
	n.net.mu.Lock()
	n.tellLocked(peer, pkHello, hello)
}

func (n *fakeNode) tellLocked(peer int, kind packetKind, body []byte) {
	d := n.net.nodes[peer]
	d.in[n.rank] = append(d.in[n.rank], packet{kind: kind, src: n.rank, payload: slices.Clone(body)})
	d.eventLocked()
}

// welcome takes a HELLO.
func (n *fakeNode) welcome(p *packet) {
	n.net.mu.Lock()
	l := &n.links[p.src]
	if !l.begun && !l.cut {
		n.greetLocked(p.src)
	}
	n.net.mu.Unlock()
	err := n.sink.Connected(p.src, p.payload)
	n.net.mu.Lock()
	l.up = err == nil
	if err != nil {
		n.tellLocked(p.src, pkEnd, []byte(err.Error()))
	}
	n.net.mu.Unlock()
	if err != nil {
		n.sink.PeerLost(p.src, err)
	}
}

// goneLocked is what a call for a rank that is dead returns: before its loss was reported it does
// not tell.
func (n *fakeNode) goneLocked(peer int) error {
	if slices.Contains(n.losses, peer) {
		return transport.ErrAgain
	}
	return fmt.Errorf("rank %d is dead", peer)
}

// Disconnect fails the reads from a rank.
func (n *fakeNode) Disconnect(peer int, _ error) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.links[peer].cut = true
	for i := range n.reads {
		if n.reads[i].peer == peer {
			n.reads[i].dropped = true
		}
	}
}

// connectAll connects all ranks with each other, and with themselves.
func (c *cluster) connectAll() {
	for _, n := range c.net.nodes {
		for peer := range c.net.nodes {
			n.readyLocked(peer)
		}
	}
	c.step()
	for _, n := range c.net.nodes {
		n.asked = nil
	}
}

// meet connects a rank to another one that is no engine, or to itself, with credit as it gives. Its
// node is n.
func (n *fakeNode) meet(e *Engine, rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inv.enterPoll(e)
	s := (*sink)(e)
	_ = s.Connected(rank, s.Greeting(rank))
	e.inv.leavePoll()
	n.links[rank] = fakeLink{begun: true, up: true}
}
