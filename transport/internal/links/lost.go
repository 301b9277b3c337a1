package links

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/verbs"
)

// cause orders the reasons for the end of a link by how specific they are: one event causes flushed
// requests, an error status and an asynchronous event, and the most specific is reported.
type cause uint8

const (
	causeNone   cause = iota
	causeFlush        // flushed: something else ended the queue pair
	causeStatus       // a completion with an error status
	causeEvent        // an asynchronous event, or the end of the line, that says what happened
	causeTold         // the peer has told it
	causeLocal        // detected in this package: a protocol violation, a refused request
)

// losses is the ends of links, and what comes of them.
type losses struct {
	l     *Links  // whose links
	dying []*peer // those in state linkDying
}

// lose ends a link, or what was to become one: settle moves the queue pairs to ERR, which flushes
// outstanding requests, and reports the loss in a later poll. Until then another call may replace
// the cause by a more specific one. Who sleeps is woken for that: nothing else may happen.
func (s *losses) lose(p *peer, c cause, err error) {
	l := s.l
	if p.state == linkLost || p.state == linkDying && c <= p.cause {
		return
	}
	p.cause = c
	p.err = err
	p.limit = 0
	l.todo = true
	if p.state == linkDying {
		return
	}
	p.state = linkDying
	s.dying = append(s.dying, p)
	p.endMaking()
	l.last = lastFrom{qpn: noQPN}
	l.Wake()
}

// kill tells the peer why the link has ended, and moves the queue pairs to ERR: in this order, as
// the peer may see them fail, and is to have the reason by then.
func (s *losses) kill(p *peer) {
	if p.line && p.cause != causeTold {
		s.l.lines.tellEnd(s.l.addrs[p.rank], p.err)
		s.l.lines.tellEnds()
	}
	for _, qp := range p.pairs() {
		if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState); err != nil {
			p.err = errors.Join(p.err, err)
		}
	}
}

// LinkErr returns why the link to a rank does not work, nil while nothing has told of its end. It
// also polls events: a completion may be polled before the event that gives the cause.
func (s *losses) LinkErr(rank int) error {
	s.pollEvents()
	return s.l.peers[rank].err
}

// ProtocolError ends the link to a rank that sent what no transport sends; err says what.
func (s *losses) ProtocolError(rank int, err error) {
	s.lose(s.l.peer(rank), causeLocal, violation(err))
}

// Disconnect ends the link to a rank that the engine has given up because of err, connected or not.
func (s *losses) Disconnect(rank int, err error) {
	if uint(rank) < uint(len(s.l.peers)) && s.l.peers[rank].state <= linkUp {
		s.lose(s.l.peer(rank), causeLocal, err)
	}
}

// RecvFailed handles a receive that completed with an error status, which ends the link.
func (s *losses) RecvFailed(wc *verbs.WC) {
	rank := s.l.byQPN.Find(uint64(wc.QPNum))
	switch {
	case rank < 0:
	case wc.Status == verbs.WCLocLenErr:
		s.lose(s.l.peers[rank], causeEvent, violation(&verbs.StatusError{Status: wc.Status}))
	default:
		s.loseBy(s.l.peers[rank], wc.Status)
	}
}

// Flushed ends the link to a rank, as a completion tells that its queue pair has failed, and not
// why.
func (s *losses) Flushed(rank int) { s.loseBy(s.l.peers[rank], verbs.WCWRFlushErr) }

// loseBy ends a link because of a completion's error status, or of the event behind it: operations
// that end with the completion are to have that cause.
func (s *losses) loseBy(p *peer, status verbs.WCStatus) {
	s.pollEvents()
	c := causeStatus
	if status == verbs.WCWRFlushErr {
		c = causeFlush
	}
	s.lose(p, c, ofStatus(status))
}

// pollEvents handles the device's asynchronous events.
func (s *losses) pollEvents() {
	l := s.l
	for {
		ev, ok := l.cfg.Device.PollAsync()
		if !ok {
			return
		}
		switch ev.Type {
		case verbs.EventCQErr, verbs.EventSRQErr, verbs.EventDeviceFatal:
			l.Break(fmt.Errorf("device event %v: %w", ev.Type, orUnknown(ev.Err)))
			return
		case verbs.EventPortErr, verbs.EventPortActive: // queue pairs fail by themselves
			l.cfg.Logger.Warn("the port of a device has changed", "rank", l.cfg.Rank, "device", l.cfg.Device.Name(), "event", ev.Type)
		}
		rank := l.byQPN.Find(uint64(ev.QP))
		if rank < 0 {
			continue
		}
		p := l.peers[rank]
		switch ev.Type {
		case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
			l.lose(p, causeEvent, ofEvent(&ev))
		case verbs.EventQPLastWQEReached:
			l.lose(p, causeFlush, ofStatus(verbs.WCWRFlushErr))
		}
	}
}

// orUnknown is err, or an error where the device gives none.
func orUnknown(err error) error {
	if err == nil {
		return errors.New("the device does not say why")
	}
	return err
}

// report tells the peers of losses and reports those to the Sink, when that is due. It returns how
// much was done; empty says that no completions are left, see Links.End.
func (s *losses) report(empty bool) (n int) {
	l := s.l
	for i := 0; i < len(s.dying); i++ { // the Sink may lose more
		p := s.dying[i]
		switch {
		case !p.quiet:
			p.quiet = true
			n++
			s.kill(p)
		case p.unended > 0 && l.cfg.Unended != nil:
			n += l.cfg.Unended(p.rank, empty)
		case !empty || p.reads > 0 || p.unended > 0:
		default:
			p.state = linkLost
			n++
			l.sink.PeerLost(p.rank, p.err)
		}
	}
	s.dying = slices.DeleteFunc(s.dying, func(p *peer) bool { return p.state == linkLost })
	return n
}

// settle posts deferred grants, reports losses and tells the peers of them; empty is that of End.
// It returns how much was done: nobody sleeps before a loss is reported that waits for another poll
// only.
func (l *Links) settle(empty bool) int {
	l.todo = false
	due := l.regrant()
	n := l.report(empty)
	if len(l.lines.ends) > 0 {
		l.lines.tellEnds()
	}
	if len(l.lines.ends) > 0 {
		l.conn.again()
	}
	l.todo = l.todo || due || len(l.dying)+len(l.conn.unmade)+len(l.lines.ends) > 0
	return n
}
