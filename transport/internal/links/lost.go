package links

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/transport"
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

// lose ends a link, or what was to become one: settle moves the queue pairs to ERR, which flushes
// outstanding requests, and reports the loss in a later poll. Until then another call may replace
// the cause by a more specific one. Who sleeps is woken for that: nothing else may happen.
func (l *Links) lose(p *peer, c cause, err error) {
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
	l.dying = append(l.dying, p)
	p.endMaking()
	l.last = lastFrom{}
	l.Wake()
}

// kill tells the peer why the link has ended, and moves the queue pairs to ERR: in this order, as
// the peer may see them fail, and is to have the reason by then.
func (l *Links) kill(p *peer) {
	if p.line && p.cause != causeTold {
		l.tellEnd(l.addrs[p.rank], p.err)
		l.tellEnds()
	}
	for _, qp := range p.pairs() {
		if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState); err != nil {
			p.err = errors.Join(p.err, err)
		}
	}
}

// LinkErr returns why the link to a rank does not work, nil while nothing has told of its end. It
// also polls events: a completion may be polled before the event that gives the cause.
func (l *Links) LinkErr(rank int) error {
	l.pollEvents()
	return l.peers[rank].err
}

// DeferLoss with n = 1 defers the report of a rank's loss, as an operation of that rank must end
// first; n = -1, when it has ended, takes that back. Calls are counted.
func (l *Links) DeferLoss(rank, n int) { l.peers[rank].unended += n }

// ResetRecv resets the queue pair that receives from a rank whose link is lost: its device then
// owes no completion of what the rank has sent.
func (l *Links) ResetRecv(rank int) error {
	return l.peers[rank].recvQP.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState)
}

// ProtocolError ends the link to a rank that sent what no transport sends; err says what.
func (l *Links) ProtocolError(rank int, err error) {
	l.lose(l.peer(rank), causeLocal, violation(err))
}

// Disconnect ends the link to a rank that the engine has given up because of err, connected or not.
func (l *Links) Disconnect(rank int, err error) {
	if uint(rank) < uint(len(l.peers)) && l.peers[rank].state <= linkUp {
		l.lose(l.peer(rank), causeLocal, err)
	}
}

// Discards reports whether what a rank sends is to be discarded: its link has ended, and not only
// by a failure that earlier messages may have overtaken.
func (l *Links) Discards(rank int) bool { return l.peers[rank].discards() }

func (p *peer) discards() bool {
	return p.state > linkUp && (p.state == linkLost || p.cause == causeLocal)
}

// OfRead is the error of a read that a device ends with s alone; nil: that ends the link.
func (l *Links) OfRead(s verbs.WCStatus) error {
	switch {
	case !l.readFaults || !s.FailsAlone():
		return nil
	case s == verbs.WCRemOpErr:
		return transport.ErrUnreadable
	case s == verbs.WCLocAccessErr:
		return transport.ErrUnwritable
	}
	return transport.ErrDeregistered
}

// RecvFailed handles a receive that completed with an error status, which ends the link.
func (l *Links) RecvFailed(wc *verbs.WC) {
	rank := l.byQPN.Find(uint64(wc.QPNum))
	switch {
	case rank < 0:
	case wc.Status == verbs.WCLocLenErr:
		l.lose(l.peers[rank], causeEvent, violation(&verbs.StatusError{Status: wc.Status}))
	default:
		l.loseBy(l.peers[rank], wc.Status)
	}
}

// Flushed ends the link to a rank, as a completion tells that its queue pair has failed, and not
// why.
func (l *Links) Flushed(rank int) { l.loseBy(l.peers[rank], verbs.WCWRFlushErr) }

// loseBy ends a link because of a completion's error status, or of the event behind it: operations
// that end with the completion are to have that cause.
func (l *Links) loseBy(p *peer, status verbs.WCStatus) {
	l.pollEvents()
	c := causeStatus
	if status == verbs.WCWRFlushErr {
		c = causeFlush
	}
	l.lose(p, c, ofStatus(status))
}

// pollEvents handles the device's asynchronous events.
func (l *Links) pollEvents() {
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

// settle posts deferred grants, reports losses and tells the peers of them; empty says that no
// completions are left, see End. It returns how much was done: nobody sleeps before a loss is
// reported that waits for another poll only.
func (l *Links) settle(empty bool) int {
	l.todo = false
	n, due := 0, l.regrant()
	for i := 0; i < len(l.dying); i++ { // the Sink may lose more
		p := l.dying[i]
		switch {
		case !p.quiet:
			p.quiet = true
			n++
			l.kill(p)
		case p.unended > 0 && l.cfg.Unended != nil:
			n += l.cfg.Unended(p.rank, empty)
		case !empty || p.reads > 0 || p.unended > 0:
		default:
			p.state = linkLost
			n++
			l.sink.PeerLost(p.rank, p.err)
		}
	}
	l.dying = slices.DeleteFunc(l.dying, func(p *peer) bool { return p.state == linkLost })
	if len(l.ends) > 0 {
		l.tellEnds()
	}
	if len(l.ends) > 0 {
		l.again()
	}
	l.todo = l.todo || due || len(l.dying)+len(l.unmade)+len(l.ends) > 0
	return n
}
