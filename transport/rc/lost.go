package rc

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// cause ranks what is known about the end of a link: one event shows up as flushed requests, as a
// status and as an asynchronous event, and the most telling of them is reported.
type cause uint8

const (
	causeNone   cause = iota
	causeFlush        // something ended the queue pair before
	causeStatus       // a completion with an error status
	causeEvent        // an asynchronous event that says what happened
	causeLocal        // found out here: a violation, a refused request
)

// Lose ends a link: the queue pair goes to ERR, which flushes what is under way, and Settle tells
// the sink. It may be called again with a better cause until then.
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

// Broken returns why a rank's link does not work, nil while it does. It looks at the queue pairs
// too: a completion can say that something ended before the event that says why was taken.
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

// Connected says that Connect has linked a rank, whatever became of the link.
func (l *Links) Connected(rank int) bool { return l.peers[rank].state != linkNew }

// Hold keeps the loss of a rank from being told until as many Holds of -1 as of 1 were made:
// something of its is under way that has to end first.
func (l *Links) Hold(rank, n int) { l.peers[rank].held += n }

// Waiting says that a completion of a send request is to be expected.
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

// Deaf says that nothing that comes from a rank is to be believed or delivered any more.
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

// completed frees what a request held; failure is that of a read that failed alone.
func (l *Links) completed(p *peer, wc *verbs.WC, failure error) {
	if invariant.Enabled {
		l.checkCompleted(p, uint32(wc.WRID))
	}
	p.done = uint32(wc.WRID) + 1
	if p.waiting > 0 {
		p.waiting--
		l.waiting--
	}
	l.gaveBack(p, wc.WRID, failure)
}

// gaveBack ends what a request held: the device is done with it, or has failed with failure.
func (l *Links) gaveBack(p *peer, wrid uint64, failure error) {
	switch wrid >> kindShift << kindShift {
	case kindBounce:
		l.bounce.Put(uint32(wrid >> slotShift & slotMask))
	case kindRead:
		l.readDone(p, wrid, failure)
	}
}

// Failed handles a completion with an error status, of a send request or a receive. The first of
// them ends the link, and what was under way ends with it; but for a read from or to withdrawn
// memory, which fails alone where the device can do so.
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
	l.gaveBack(p, wc.WRID, p.err)
}

// Events takes the device's asynchronous events. An error means that the transport as a whole
// cannot go on.
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

// Settle does what is left to do after completions were handled. all says that there were no more
// of them: only then are the messages of a peer that died all delivered, and its loss may be told.
// It returns how many peers were lost.
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

// Todo says that Settle is needed.
func (l *Links) Todo() bool { return l.todo }
