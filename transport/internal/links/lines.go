package links

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// What ranks tell each other by the lines of their devices: HELLO and READY, which connect queue
// pairs, and END. Nothing that is told can be trusted beyond this: it comes from the device that it
// is said to come from, in order.

// ending is an END that is to be told.
type ending struct {
	to  []byte // the device
	msg []byte
}

// pollTold handles what other devices have told this one, and what follows for the connections that
// are being made. It returns how much that was.
func (l *Links) pollTold() (n int) {
	for {
		t, ok := l.cfg.Device.PollTold()
		if !ok {
			break
		}
		n++
		if t.Msg == nil {
			l.lineEnded(&t)
		} else {
			l.told(&t)
		}
	}
	if len(l.unmade) > 0 {
		n += l.makeSome()
	}
	return n
}

// lineEnded handles the end of the line to a device: nobody is to be told anything there.
func (l *Links) lineEnded(t *verbs.Told) {
	l.ends = slices.DeleteFunc(l.ends, func(e ending) bool { return bytes.Equal(e.to, t.From) })
	rank := l.rankAt(t.From)
	if rank < 0 || l.peers[rank] == &l.fresh {
		return // nothing was begun with it
	}
	p := l.peers[rank]
	p.line = false
	l.lose(p, causeEvent, ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: t.Err}))
}

// told handles a message.
func (l *Links) told(t *verbs.Told) {
	msg, err := format.DecodeTold(t.Msg)
	rank := l.rankAt(t.From)
	if rank < 0 {
		if _, ok := msg.(*format.End); !ok {
			l.tellEnd(t.From, fmt.Errorf("rank %d knows no rank of the job with this device", l.self.Rank))
		}
		return
	}
	p := l.peer(rank)
	p.line = true
	switch m := msg.(type) {
	case *format.End:
		l.lose(p, causeTold, ofEnd(m))
	case *format.Hello:
		l.toldHello(p, m)
	case *format.Ready:
		l.toldReady(p, m)
	default:
		if p.state > linkUp {
			return // it is told, or was
		}
		if _, ok := errors.AsType[*format.OtherVersion](err); !ok {
			err = violation(err)
		}
		l.lose(p, causeLocal, err)
	}
}

// rankAt returns the rank with a device, -1 if there is none. No two have the same, see connect.
func (l *Links) rankAt(device []byte) int {
	rank := l.byDevice.Find(l.deviceKey(device))
	if rank < 0 || !bytes.Equal(l.addrs[rank], device) {
		return -1
	}
	return rank
}

// toldHello handles a HELLO from the device of p.
func (l *Links) toldHello(p *peer, h *format.Hello) {
	pairs := 1
	if l.cfg.RecvQP {
		pairs = 2
	}
	switch {
	case p.state > linkUp:
		l.tellEnd(l.addrs[p.rank], fmt.Errorf("rank %d has given it up: %w", l.self.Rank, p.err))
	case h.Rank != p.rank:
		l.lose(p, causeLocal, violation(fmt.Errorf("it says that it is rank %d", h.Rank)))
	case len(h.Pairs) != pairs:
		l.lose(p, causeLocal, violation(fmt.Errorf("it makes %d pairs, this rank %d", len(h.Pairs), pairs)))
	case p.state == linkNew && l.begin(p).toldHello():
		p.making.theirs, p.number = h, h.Number
		l.goesOn(p)
	case h.Number == p.number:
		l.lose(p, causeLocal, violation(errors.New("it says HELLO twice")))
	default:
		l.lose(p, causeLocal, errors.New("it has begun anew, with another transport"))
	}
}

// toldReady handles a READY from the device of p.
func (l *Links) toldReady(p *peer, r *format.Ready) {
	if p.state > linkUp {
		return
	}
	if p.making == nil || r.Number != l.number || !p.making.toldReady() {
		l.lose(p, causeLocal, violation(errors.New("it says READY out of turn")))
		return
	}
	l.goesOn(p)
}

// tell tells p's device a message. It returns false if there is no room now, or if there is no way:
// p is lost then. The own rank is told nothing.
func (l *Links) tell(p *peer, msg []byte) bool {
	if p.rank == l.self.Rank {
		return true
	}
	err := l.cfg.Device.Tell(l.addrs[p.rank], msg)
	switch {
	case err == nil:
		p.line = true
		return true
	case !errors.Is(err, syscall.ENOBUFS):
		l.lose(p, causeLocal, explained(err, "the device of this rank failed: telling it that there is a connection to make"))
	}
	return false
}

// tellEnd has a device told that there is no connection, or none any more, because of err.
func (l *Links) tellEnd(to []byte, err error) {
	if slices.ContainsFunc(l.ends, func(e ending) bool { return bytes.Equal(e.to, to) }) {
		return
	}
	e := format.End{Accuses: errors.Is(err, transport.ErrProtocol) && !errors.Is(err, transport.ErrAccused), Reason: err.Error()}
	l.ends = append(l.ends, ending{bytes.Clone(to), e.Encode()})
	l.todo = true
}

// tellEnds tells the ENDs that are due. All that was told before was polled: where a line has
// ended, nothing is due, as a message would make another one.
func (l *Links) tellEnds() {
	l.ends = slices.DeleteFunc(l.ends, func(e ending) bool {
		return !errors.Is(l.cfg.Device.Tell(e.to, e.msg), syscall.ENOBUFS)
	})
}
