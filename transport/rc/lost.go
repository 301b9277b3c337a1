package rc

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
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

// Lose ends a link: the queue pair goes to ERR, which flushes outstanding requests, and Settle
// reports the loss. Until then another call may replace the cause by a more specific one.
func (l *Links) Lose(p *peer, c cause, err error) {
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
	l.waiting -= p.waiting
	p.waiting = 0
	for _, qp := range []verbs.QP{p.qp, p.twin} {
		if qp == nil || qp.State() == verbs.QPSErr {
			continue
		}
		if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState); err != nil {
			p.err = errors.Join(p.err, err)
		}
	}
}

// Broken returns why a rank's link does not work, nil while it does. It also queries the queue
// pairs: a completion may be polled before the event that gives the cause.
func (l *Links) Broken(rank int) error {
	p := &l.peers[rank]
	switch {
	case p.err != nil:
		return p.err
	case p.qp.State() == verbs.QPSErr || p.twin != nil && p.twin.State() == verbs.QPSErr:
		return ofStatus(verbs.WCWRFlushErr)
	}
	return nil
}

// Connected reports that Connect was called for a rank, whatever the state of the link.
func (l *Links) Connected(rank int) bool { return l.peers[rank].state != linkNew }

// Hold with n = 1 defers the report of a rank's loss, as an operation of that rank must end first;
// n = -1 takes that back. Calls are counted.
func (l *Links) Hold(rank, n int) { l.peers[rank].held += n }

// Waiting reports that completions of send requests are outstanding.
func (l *Links) Waiting() bool { return l.waiting > 0 }

// Violation ends the link to a rank that sent something impossible.
func (l *Links) Violation(rank int, err error) {
	l.Lose(&l.peers[rank], causeLocal, fmt.Errorf("it broke the protocol (%s): %w", alike, err))
}

// Disconnect ends the link to a rank that the engine has given up.
func (l *Links) Disconnect(rank int, err error) {
	if uint(rank) < uint(len(l.peers)) && l.peers[rank].state == linkUp {
		l.Lose(&l.peers[rank], causeLocal, err)
	}
}

// Deaf reports that messages of a rank must be discarded.
func (l *Links) Deaf(rank int) bool {
	p := &l.peers[rank]
	return p.state == linkLost || p.state == linkDying && p.cause == causeLocal
}

// Completed handles the successful completion of a send request.
func (l *Links) Completed(wc *verbs.WC) {
	if rank := l.byQPN.find(wc.QPNum); rank >= 0 {
		l.completed(&l.peers[rank], wc, nil)
	}
}

// completed releases the resources of a request; failure is the error of a read that failed alone.
func (l *Links) completed(p *peer, wc *verbs.WC, failure error) {
	if invariant.Enabled {
		l.checkCompleted(p, uint32(wc.WRID))
	}
	p.done = uint32(wc.WRID) + 1
	if p.waiting > 0 {
		p.waiting--
		l.waiting--
	}
	l.release(p, wc.WRID, failure)
}

// release releases the resources of a request that completed or, with failure, failed.
func (l *Links) release(p *peer, wrid uint64, failure error) {
	switch wrid >> kindShift << kindShift {
	case kindBounce:
		l.bounce.Put(uint32(wrid >> slotShift & slotMask))
	case kindRead:
		l.readDone(p, wrid, failure)
	}
}

// Failed handles a completion with an error status, of a send request or a receive. The first one
// ends the link, with all outstanding requests; except that a read from or to withdrawn memory
// fails alone, on devices that support it.
func (l *Links) Failed(wc *verbs.WC) {
	rank := l.byQPN.find(wc.QPNum)
	if rank < 0 {
		return
	}
	p := &l.peers[rank]
	alone := wc.Status == verbs.WCRemAccessErr || wc.Status == verbs.WCLocProtErr
	if alone && wc.WRID>>kindShift<<kindShift == kindRead && p.qp.State() == verbs.QPSRTS {
		l.completed(p, wc, transport.ErrWithdrawn)
		return
	}
	c := causeStatus
	if wc.Status == verbs.WCWRFlushErr {
		c = causeFlush
	}
	l.Lose(p, c, ofStatus(wc.Status))
	l.release(p, wc.WRID, p.err)
}

// Events handles the device's asynchronous events. An error means that the transport cannot
// continue.
func (l *Links) Events() error {
	for {
		ev, ok := l.cfg.Device.PollAsync()
		if !ok {
			return nil
		}
		if ev.Type == verbs.EventCQErr || ev.Type == verbs.EventSRQErr {
			return fmt.Errorf("transport/%s: device event %d: %w", l.cfg.Self.Mode, ev.Type, orUnknown(ev.Err))
		}
		rank := l.byQPN.find(ev.QP)
		if rank < 0 {
			continue
		}
		p := &l.peers[rank]
		switch ev.Type {
		case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
			l.Lose(p, causeEvent, ofEvent(&ev))
		case verbs.EventQPLastWQEReached:
			l.Lose(p, causeFlush, ofStatus(verbs.WCWRFlushErr))
		}
	}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("the device does not say why")
	}
	return err
}

// Settle does the deferred work after completions were handled. all means that the CQ is empty:
// only then have all messages of a dead peer been delivered, and its loss may be reported. It
// returns the number of peers lost.
func (l *Links) Settle(all bool) int {
	l.todo = false
	if l.grantsDue > 0 {
		l.regrant()
	}
	n, dying := 0, false
	for i := range l.peers {
		p := &l.peers[i]
		if p.state != linkDying {
			continue
		}
		if !all || p.reads > 0 || p.held > 0 {
			dying = true
			continue
		}
		p.state = linkLost
		n++
		l.sink.PeerLost(i, p.err)
	}
	l.todo = l.todo || dying || l.grantsDue > 0
	return n
}

// Todo reports that Settle has work.
func (l *Links) Todo() bool { return l.todo }
