package soft

import (
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
)

// nic are the habits of network adapters that a test has given to a device, which are documented at
// hook.Habits. Its methods can be called where there are none, nil.
type nic struct {
	hook.Habits
	d         *Device
	early     uint64  // queue pairs, see Early
	abandoned int     // receives, see Tags
	owed      []owing // those that have not completed
}

// owing is a receive that was matched, whose queue pair q has failed, and that does not complete.
type owing struct {
	q    *queuePair
	wrid uint64
	hnd  uint32
}

// behave gives a new device the habits of its configuration.
func (d *Device) behave() {
	h := d.cfg.habits
	if h == nil {
		return
	}
	d.nic = &nic{Habits: *h, d: d}
	a := &d.attr
	a.ReadFaults = !h.NoReadFaults
	if h.MaxInline > 0 {
		d.cfg.MaxInline = min(d.cfg.MaxInline, h.MaxInline)
		a.MaxInline = d.cfg.MaxInline
	}
}

// takes lets time of the virtual clock pass, if there is one.
func (n *nic) takes(t time.Duration) {
	if n != nil && n.d.cfg.Fabric != nil {
		loop.Advance(n.d.cfg.Fabric, t)
	}
}

// slow is the time that a call takes which makes or modifies something.
func (n *nic) slow() {
	if n != nil {
		n.takes(n.Slow)
	}
}

// tooEarly implements softtest.Early.
func (n *nic) tooEarly() uint64 {
	if n == nil {
		return 0
	}
	return n.early
}

// comesEarly records a packet for a queue pair that is not connected yet.
func (n *nic) comesEarly(q *queuePair) {
	if n != nil && n.Early && !q.early {
		q.early = true
		n.early++
		n.takes(time.Second)
	}
}

// shows is the state of a queue pair that its program is told.
func (n *nic) shows(q *queuePair) verbs.QPState {
	if n != nil && n.StaleState {
		return q.set
	}
	return q.state
}

// failed queues an event of a queue pair that has failed, but not by the end of its link.
func (d *Device) failed(e verbs.AsyncEvent) {
	if d.nic == nil || !d.nic.NoEvents {
		d.event(e)
	}
}

// unheard reports that a queue pair has failed without an event.
func (n *nic) unheard(q *queuePair) bool {
	return n != nil && n.NoEvents && q.state == verbs.QPSErr && q.set != verbs.QPSErr
}

// silent reports that no queue pair tells its peer that it answers no more. The packets that do so
// are sent nevertheless, and take the place of the timeouts of the peer, see unanswered.
func (n *nic) silent() bool { return n != nil && n.Silence > 0 }

// hearsPeers reports that the failure of a peer's queue pair has an event here.
func (n *nic) hearsPeers() bool { return n == nil || !n.NoEvents && !n.silent() }

// unanswered ends the requests of a queue pair, some polls later, as its peer does not answer: to a
// request, or because it has failed, which concerns READs that wait for their data. Others are
// transmitted, and then not answered.
func (n *nic) unanswered(q *queuePair, request bool) {
	if q.connected() && (request || q.underWay() > 0) {
		q.toErr(verbs.WCRetryExcErr, q.reclaimed, true, 0)
	}
}

// delays has a queue pair that fails with that status flush its requests some polls later. f is
// what delays that already, or nil.
func (n *nic) delays(q *queuePair, f *lateFlush, status verbs.WCStatus) *lateFlush {
	if n == nil {
		return f
	}
	passes := n.LateFlush
	if status == verbs.WCRetryExcErr {
		passes = max(passes, n.Silence)
	}
	if f == nil && passes > 0 {
		f = &lateFlush{q: q}
	}
	if f != nil {
		f.passes = passes
	}
	return f
}

// mutesTags reports Habits.Tags.
func (n *nic) mutesTags() bool { return n != nil && n.Tags }

// matchFails is tmFails for a message whose MATCH, wc, was not reported.
func (q *queuePair) matchFails(psn uint32, wc *verbs.WC, local, remote verbs.WCStatus) {
	if q.d.nic.mutesTags() {
		q.tm.cq.push(wc, frees{}, false)
	}
	q.tmFails(psn, local, remote)
}

// misnames reports the failure of a receive in the name of an untagged buffer. The receive ends as
// the queue pair fails.
func (n *nic) misnames(q *queuePair, wc *verbs.WC) bool {
	if !n.mutesTags() || q.rq.posted() == 0 {
		return false
	}
	wc.WRID = q.rq.oldest().wrid
	q.rq.pop()
	q.rcq.push(wc, frees{}, true)
	q.rx.active, q.rx.kind = true, rxTagged
	return true
}

// abandon ends a receive that q has matched, as q has failed or is reset, with the completion wc.
func (q *queuePair) abandon(wc *verbs.WC, hnd uint32) {
	if n := q.d.nic; n.mutesTags() {
		n.abandoned++
		if q.state == verbs.QPSReset || n.abandoned%2 == 0 {
			n.owed = append(n.owed, owing{q, wc.WRID, hnd})
			return
		}
		wc.Flags |= verbs.WCFlagTMMatch
		wc.QPNum = 0
	}
	q.tm.cq.push(wc, frees{tm: q.tm, hnd: hnd}, true)
}

// settles frees what is owed to a queue pair that is reset.
func (n *nic) settles(q *queuePair) {
	if n == nil {
		return
	}
	n.owed = slices.DeleteFunc(n.owed, func(o owing) bool {
		if o.q != q {
			return false
		}
		wc := verbs.WC{WRID: o.wrid, Opcode: verbs.WCTMRecv}
		q.tm.checkMade(&wc, o.hnd)
		q.tm.list.Polled(&wc, o.hnd, 0)
		return true
	})
}
