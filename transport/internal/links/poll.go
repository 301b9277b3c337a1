package links

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// The purpose of a work request is in the top four bits of its WRID, as only that is valid after an
// error status (ibv_poll_cq(3)). Receives of the SRQ have kind 0 and their buffer's slot below.
// Send requests have their sequence number in the low 32 bits and, where they use one, a slot above
// that. A transport may use kinds from FirstKind on for what it posts to the SRQ itself.
const (
	kindRecv   uint64 = iota << KindShift
	kindSend          // needs nothing when it completes
	kindBounce        // slot: of Links.bounce
	kindRead          // slot: of Links.reads

	FirstKind = 8
	KindShift = 60

	slotShift = 32
	slotMask  = 1<<(KindShift-slotShift) - 1
)

// IsRecv reports whether a completion is that of a buffer of the SRQ.
func IsRecv(wrid uint64) bool { return wrid>>KindShift == kindRecv }

const (
	pollBatch = 32 // the most completions that one poll handles
	// rareEvery is the number of polls between checks for what happens rarely: asynchronous events,
	// errors of unsignalled send requests, and ranks that ask for a connection. Arm makes the next
	// poll check. So a poller learns of these within microseconds, and a waiter before it sleeps.
	rareEvery = 256
)

// A transport's Poll is Begin; Drain; End, if EndDue. What an idle poll executes is small enough to
// be inlined.

// Begin counts a poll. An error says why the transport cannot continue.
func (l *Links) Begin() error {
	l.until--
	return l.fatal
}

// EndDue reports whether End has work.
func (l *Links) EndDue() bool { return l.until < 0 || l.todo }

// Drain has h handle what has completed, and says how much that was and whether it is all.
// Completions of send requests are for Sent. Where nothing has completed it handles what was told:
// a program that polls now and then is to answer a peer that connects.
func (l *Links) Drain(h verbs.Handler) (n int, empty bool) {
	l.stopped = false
	n, err := l.cq.Drain(h, pollBatch)
	if err != nil {
		l.Break(err)
	}
	if empty = n < pollBatch && !l.stopped; empty && l.budget.behind > 0 {
		l.budget.drained()
	}
	l.budget.check(l.made, uint32(l.until))
	if l.heard = n == 0 && err == nil; l.heard {
		n = l.pollTold()
	}
	return n, empty
}

// Enough ends the Drain under way.
func (l *Links) Enough() {
	l.stopped = true
	l.cq.Stop()
}

// End does what not every poll needs: asynchronous events, what others tell, connections, deferred
// grants, losses. n is how many events the poll has handled. empty means that no completions are
// left: only then have all messages of a dead peer been delivered, and its loss may be reported. It
// returns what Poll does.
func (l *Links) End(n int, empty bool) (int, error) {
	l.until = rareEvery
	l.pollEvents()
	if !l.heard {
		n += l.pollTold()
	}
	if l.budget.used >= l.budget.total/2 {
		l.confirmMost()
	}
	if l.todo {
		n += l.settle(empty)
	}
	return n, l.fatal
}

// Break ends the transport as a whole: its device does what it must not. The first cause remains.
func (l *Links) Break(err error) {
	l.todo = true
	if l.fatal == nil {
		l.fatal = fmt.Errorf("transport/%s: %w", l.cfg.Mode, err)
	}
}

// Broken returns the error of Break, errClosed after Close, and nil while the transport works.
func (l *Links) Broken() error { return l.fatal }

// Usual handles the usual completion: that of an eager message of the rank that the last one was
// from. It reports whether this was one; Return must follow then. Any other is for Received and
// format.Deliver.
func (l *Links) Usual(wc *verbs.WC) bool {
	from := &l.last
	if wc.QPNum != from.qpn || wc.Status != verbs.WCSuccess || wc.Opcode != l.usual || wc.Flags != 0 {
		return false
	}
	msg := l.ring.message(wc)
	if !format.IsEager(msg, l.cfg.MaxEager) {
		return false
	}
	l.ring.checkTaken(wc.WRID)
	tmh := verbs.ParseTMH(msg)
	l.sink.Eager(from.rank, tmh.AppCtx, tmh.Tag, msg[verbs.TMHSize:])
	return true
}

// Received handles the completion of a buffer of the SRQ. It returns the message and the rank that
// it is from, which is -1 if the message is to be discarded: the receive failed, nobody knows the
// queue pair, the link has ended, or ends here, as a write has taken the receive and left in its
// buffer what was there. The message is valid until Return, which must follow.
func (l *Links) Received(wc *verbs.WC) (rank int, msg []byte) {
	l.ring.checkTaken(wc.WRID)
	if wc.Status != verbs.WCSuccess {
		l.RecvFailed(wc)
		return -1, nil
	}
	rank = l.byQPN.Find(uint64(wc.QPNum))
	if rank < 0 || l.peers[rank].discards() {
		return -1, nil
	}
	if wc.Opcode == verbs.WCRecvRDMAWithImm {
		l.ProtocolError(rank, errors.New("a write with immediate data"))
		return -1, nil
	}
	if l.peers[rank].state == linkUp {
		l.last = lastFrom{wc.QPNum, rank}
	}
	return rank, l.ring.message(wc)
}

// Return gives a buffer back to the SRQ once its message was handled, or its receive has failed. It
// returns what verbs.Handler does.
func (l *Links) Return(wc *verbs.WC) (again bool) {
	if wc.Data == nil {
		return l.postAgain(wc)
	}
	l.ring.checkPosted(wc.WRID)
	return true
}

func (l *Links) postAgain(wc *verbs.WC) (again bool) {
	l.ring.poison(wc)
	if l.ring.add(wc.WRID) {
		if err := l.ring.flush(); err != nil {
			l.Break(err)
		}
	}
	return false
}

// Arm requests that Wait end at the next event.
func (l *Links) Arm() error {
	l.until = 0
	return l.cq.Arm(false)
}
