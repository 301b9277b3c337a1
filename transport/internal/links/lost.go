package links

import (
	"errors"
	"fmt"

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
	causeEvent        // an asynchronous event that says what happened
	causeLocal        // detected in this package: a protocol violation, a refused request
)

// lose ends a link: the queue pairs go to ERR, which flushes outstanding requests, and settle
// reports the loss. Until then another call may replace the cause by a more specific one.
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
	l.last = lastFrom{}
	for _, qp := range []verbs.QP{p.qp, p.recvQP} {
		if qp == nil || qp.State() == verbs.QPSErr {
			continue
		}
		if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState); err != nil {
			p.err = errors.Join(p.err, err)
		}
	}
}

// LinkErr returns why the link to a rank does not work, nil while it does. It also queries the
// queue pairs: a completion may be polled before the event that gives the cause.
func (l *Links) LinkErr(rank int) error {
	l.pollEvents()
	p := &l.peers[rank]
	switch {
	case p.err != nil:
		return p.err
	case p.qp.State() == verbs.QPSErr || p.recvQP != nil && p.recvQP.State() == verbs.QPSErr:
		return ofStatus(verbs.WCWRFlushErr)
	}
	return nil
}

// DeferLoss with n = 1 defers the report of a rank's loss, as an operation of that rank must end
// first; n = -1, when it has ended, takes that back. Calls are counted.
func (l *Links) DeferLoss(rank, n int) { l.peers[rank].unended += n }

// ProtocolError ends the link to a rank that sent what no transport sends; err says what.
func (l *Links) ProtocolError(rank int, err error) {
	l.lose(&l.peers[rank], causeLocal, violation(err))
}

// Disconnect ends the link to a rank that the engine has given up because of err.
func (l *Links) Disconnect(rank int, err error) {
	if uint(rank) < uint(len(l.peers)) && l.peers[rank].state == linkUp {
		l.lose(&l.peers[rank], causeLocal, err)
	}
}

// Discards reports whether what a rank sends is to be discarded: its link has ended, and not only
// by a failure that earlier messages may have overtaken.
func (l *Links) Discards(rank int) bool { return l.peers[rank].discards() }

func (p *peer) discards() bool {
	return p.state > linkUp && (p.state == linkLost || p.cause == causeLocal)
}

// OfRead is the error of a read that a device ends with s alone; nil: that ends the link.
func OfRead(s verbs.WCStatus) error {
	switch {
	case !s.FailsAlone():
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
		l.lose(&l.peers[rank], causeEvent, violation(&verbs.StatusError{Status: wc.Status}))
	default:
		l.loseBy(&l.peers[rank], wc.Status)
	}
}

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
		if ev.Type == verbs.EventCQErr || ev.Type == verbs.EventSRQErr {
			l.Break(fmt.Errorf("device event %d: %w", ev.Type, orUnknown(ev.Err)))
			return
		}
		rank := l.byQPN.Find(uint64(ev.QP))
		if rank < 0 {
			continue
		}
		p := &l.peers[rank]
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

// settle posts deferred grants and reports losses; empty says that no completions are left, see
// End. It returns the number of peers whose loss it has reported.
func (l *Links) settle(empty bool) int {
	l.todo = false
	if l.grants.due > 0 {
		l.regrant()
	}
	n, dying := 0, false
	for i := range l.peers {
		p := &l.peers[i]
		if p.state != linkDying {
			continue
		}
		if !empty || p.reads > 0 || p.unended > 0 {
			dying = true
			continue
		}
		p.state = linkLost
		n++
		l.sink.PeerLost(i, p.err)
	}
	l.todo = l.todo || dying || l.grants.due > 0
	return n
}
