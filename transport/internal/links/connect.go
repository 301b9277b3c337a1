package links

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// Connect says how rank is reached; addr is its Address, which is kept.
func (l *Links) Connect(rank int, addr []byte) error {
	if err := l.directory.add(rank, addr); err != nil {
		return fmt.Errorf("transport/%s: connect rank %d: %w", l.cfg.Mode, rank, err)
	}
	return nil
}

// connector makes the connections, as messages are posted to peers or peers tell HELLO.
type connector struct {
	l      *Links      // whose connections
	number uint64      // random, tells this transport from others with its device
	unmade []*peer     // those for whose connection something may be due, see making.listed
	retry  *time.Timer // see again; nil: there was no need yet
}

// making is a connection while it is being made.
type making struct {
	handshake
	mine, theirs *format.Hello // once this end has told it, or is to; once the peer has
	reminder     *time.Timer   // nil: none
	listed       bool          // it is in connector.unmade
}

// begin begins the connection to a peer, unless it has begun.
func (c *connector) begin(p *peer) *making {
	if p.making == nil {
		p.making = &making{reminder: c.remind(p.rank)}
		c.goesOn(p)
	}
	return p.making
}

// goesOn has the next poll, or this one, do what is due for a connection that is being made.
func (c *connector) goesOn(p *peer) {
	if c.l.todo = true; !p.making.listed {
		p.making.listed = true
		c.unmade = append(c.unmade, p)
	}
}

// patience is how long a rank may take to answer before the log says so. Nothing else follows: it
// may compute, and a host that is gone ends the line.
const patience = 10 * time.Second

func (c *connector) remind(rank int) *time.Timer {
	log, own := c.l.cfg.Logger, c.l.self.Rank
	if rank == own {
		return nil
	}
	return time.AfterFunc(patience, func() {
		log.Warn("a rank has not answered yet, so that messages to it wait: it computes, or is stopped", "rank", own, "peer", rank, "after", patience)
	})
}

// endMaking ends the making of a connection, whether it has succeeded or not.
func (p *peer) endMaking() {
	if m := p.making; m != nil && m.reminder != nil {
		m.reminder.Stop()
	}
	p.making = nil
}

// makeSome moves the connections that are being made on, and returns how much was done. At most one
// of them makes or connects queue pairs, for which a NIC takes a millisecond: other peers are to be
// attended to in between.
func (c *connector) makeSome() (n int) {
	var slow *peer
	short := false                       // of memory: others need not try
	for i := 0; i < len(c.unmade); i++ { // Sink.Connected may begin more
		p := c.unmade[i]
		for p.state == linkNew {
			a := p.making.due()
			if a == nothing || a.slow() && slow != nil && slow != p || a == makePairs && short {
				break
			}
			if !c.do(p, a) {
				short = short || a == makePairs
				c.again()
				break
			}
			if a.slow() {
				slow = p
			}
			n++
		}
	}
	c.unmade = slices.DeleteFunc(c.unmade, func(p *peer) bool {
		if p.state == linkNew {
			p.making.listed = p.making.due() != nothing
			return !p.making.listed
		}
		return true
	})
	return n
}

// retryTick is how soon who sleeps polls again for what had no room.
const retryTick = time.Millisecond

// again has who sleeps poll again soon: of room for what is to be told, or registered, a device
// tells nobody.
func (c *connector) again() {
	if c.retry == nil {
		c.retry = time.AfterFunc(retryTick, c.l.Wake)
	} else {
		c.retry.Reset(retryTick)
	}
}

// close ends the timer of again.
func (c *connector) close() {
	if c.retry != nil {
		c.retry.Stop()
	}
}

// do does what is due for a connection. It returns false if that cannot be done now, or never.
func (c *connector) do(p *peer, a action) bool {
	m := p.making
	var err error
	switch a {
	case makePairs:
		if err = c.makePairs(p); err == transport.ErrAgain {
			return false
		}
	case tellHello:
		if !c.l.lines.tell(p, m.mine.Encode()) {
			return false
		}
	case connectPairs:
		err = p.connectPairs(c.l.addrs[p.rank], m.mine, m.theirs)
	case tellReady:
		if !c.l.lines.tell(p, (&format.Ready{Number: m.theirs.Number}).Encode()) {
			return false
		}
	case open:
		c.opened(p)
	}
	if err != nil {
		c.l.lose(p, causeLocal, err)
		return false
	}
	m.next()
	return true
}

// opened lets messages be posted to a peer.
func (c *connector) opened(p *peer) {
	greeting := p.making.theirs.Greeting
	p.endMaking()
	p.state, p.limit = linkUp, c.l.depth
	if err := c.l.sink.Connected(p.rank, greeting); err != nil {
		c.l.lose(p, causeLocal, err)
	}
}

// makePairs makes the credit cell and the queue pairs of a peer, and what HELLO says of them. With
// ErrAgain it has made nothing: memory is short, and some will be given back.
func (c *connector) makePairs(p *peer) error {
	l, cell := c.l, cellBytes(&p.cell)
	mr, err := l.pd.RegMR(cell, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err = l.unregistered(len(cell), err); err == transport.ErrAgain {
		return err
	}
	if err != nil {
		return &lossError{"this rank has no credit cell for it (" + err.Error() + ")", err}
	}
	p.cellMR = mr
	attr := l.cfg.Device.Attr()
	if err := l.createPairs(p); err != nil {
		return &lossError{"this rank has no queue pair for it: its device has " + fmt.Sprint(attr.MaxQP) + " (" + err.Error() + ")", err}
	}
	h := &format.Hello{Rank: l.self.Rank, Number: c.number, MTU: max(attr.MaxMTU, verbs.MTU256),
		Target: min(attr.MaxQPRdAtom, maxRdAtomic), Initiator: min(attr.MaxQPInitRdAtom, maxRdAtomic),
		CellAddr: mr.Addr(), CellRKey: mr.RKey(), Greeting: l.sink.Greeting(p.rank)}
	for _, qp := range p.pairs() {
		h.Pairs = append(h.Pairs, format.Pair{Num: qp.Num(), PSN: rand.Uint32N(1 << 24)})
		l.byQPN.Add(uint64(qp.Num()), uint32(p.rank))
	}
	m := p.making
	m.mine = h
	if p.rank == l.self.Rank { // it has nothing to wait for
		m.theirs, m.hello, m.ready = h, true, true
	}
	return nil
}

// toldHello handles a HELLO from the device of p.
func (c *connector) toldHello(p *peer, h *format.Hello) {
	l, pairs := c.l, 1
	if l.cfg.RecvQP {
		pairs = 2
	}
	switch {
	case p.state > linkUp:
		l.lines.tellEnd(l.addrs[p.rank], fmt.Errorf("rank %d has given it up: %w", l.self.Rank, p.err))
	case h.Rank != p.rank:
		l.lose(p, causeLocal, violation(fmt.Errorf("it says that it is rank %d", h.Rank)))
	case len(h.Pairs) != pairs:
		l.lose(p, causeLocal, violation(fmt.Errorf("it makes %d pairs, this rank %d", len(h.Pairs), pairs)))
	case p.state == linkNew && c.begin(p).toldHello():
		p.making.theirs, p.number = h, h.Number
		c.goesOn(p)
	case h.Number == p.number:
		l.lose(p, causeLocal, violation(errors.New("it says HELLO twice")))
	default:
		l.lose(p, causeLocal, errors.New("it has begun anew, with another transport"))
	}
}

// toldReady handles a READY from the device of p.
func (c *connector) toldReady(p *peer, r *format.Ready) {
	if p.state > linkUp {
		return
	}
	if p.making == nil || r.Number != c.number || !p.making.toldReady() {
		c.l.lose(p, causeLocal, violation(errors.New("it says READY out of turn")))
		return
	}
	c.goesOn(p)
}
