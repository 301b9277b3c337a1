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

// lines is this rank's ends of the lines.
type lines struct {
	l    *Links   // whose lines
	ends []ending // at most one for each device
}

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
			l.lines.ended(&t)
		} else {
			l.lines.told(&t)
		}
	}
	if len(l.conn.unmade) > 0 {
		n += l.conn.makeSome()
	}
	return n
}

// ended handles the end of the line to a device: nobody is to be told anything there.
func (s *lines) ended(t *verbs.Told) {
	l := s.l
	s.ends = slices.DeleteFunc(s.ends, func(e ending) bool { return bytes.Equal(e.to, t.From) })
	rank := l.rankAt(t.From)
	if rank < 0 || l.peers[rank] == &l.fresh {
		return // nothing was begun with it
	}
	p := l.peers[rank]
	p.line = false
	l.lose(p, causeEvent, ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: t.Err}))
}

// told handles a message.
func (s *lines) told(t *verbs.Told) {
	l := s.l
	msg, err := format.DecodeTold(t.Msg)
	rank := l.rankAt(t.From)
	if rank < 0 {
		if _, ok := msg.(*format.End); !ok {
			s.tellEnd(t.From, fmt.Errorf("rank %d knows no rank of the job with this device", l.self.Rank))
		}
		return
	}
	p := l.peer(rank)
	p.line = true
	switch m := msg.(type) {
	case *format.End:
		l.lose(p, causeTold, ofEnd(m))
	case *format.Hello:
		l.conn.toldHello(p, m)
	case *format.Ready:
		l.conn.toldReady(p, m)
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

// tell tells p's device a message. It returns false if there is no room now, or if there is no way:
// p is lost then. The own rank is told nothing.
func (s *lines) tell(p *peer, msg []byte) bool {
	l := s.l
	if p.rank == l.self.Rank {
		return true
	}
	err := l.device.Tell(l.addrs[p.rank], msg)
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
func (s *lines) tellEnd(to []byte, err error) {
	if slices.ContainsFunc(s.ends, func(e ending) bool { return bytes.Equal(e.to, to) }) {
		return
	}
	e := format.End{Accuses: errors.Is(err, transport.ErrProtocol) && !errors.Is(err, transport.ErrAccused), Reason: err.Error()}
	s.ends = append(s.ends, ending{bytes.Clone(to), e.Encode()})
	s.l.todo = true
}

// tellEnds tells the ENDs that are due. All that was told before was polled: where a line has
// ended, nothing is due, as a message would make another one.
func (s *lines) tellEnds() {
	s.ends = slices.DeleteFunc(s.ends, func(e ending) bool {
		return !errors.Is(s.l.device.Tell(e.to, e.msg), syscall.ENOBUFS)
	})
}
