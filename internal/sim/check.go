package sim

import (
	"errors"
	"slices"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/progress/progresstest"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// check checks a world after it has settled.
func (w *world) check() error {
	if err := w.checkLosses(); err != nil {
		return err
	}
	for _, r := range w.ranks {
		if r.dead {
			continue
		}
		for _, o := range r.ops {
			if err := errors.Join(o.checkBuffer(w.wentBack(r, o)), w.checkOutcome(r, o)); err != nil {
				return err
			}
		}
		if err := w.checkHistory(r, r.stopped); err != nil {
			return err
		}
		m := r.engine.Metrics()
		if err := w.checkMetrics(r, &m); err != nil {
			return err
		}
		w.count(r, &m)
	}
	if !w.faults() && !w.aborted() {
		return errors.Join(w.checkTotals(), w.checkCredit())
	}
	return nil
}

// closed checks a closed world: every operation has ended, and no buffer was written to afterwards.
func (w *world) closed() error {
	for _, r := range w.ranks {
		w.harvest(r)
		if len(r.active) > 0 {
			return fail("unfinished", "rank %d, after its engine was closed: %s", r.id, r.active[0])
		}
		for _, o := range r.ops {
			if err := o.checkBuffer(w.wentBack(r, o)); err != nil {
				return err
			}
			allowed := o.err == nil || o.received() || o.canceled() || w.full(o) || o.lost() || errors.Is(o.err, progress.ErrClosed) ||
				o.withdrawn() || o.revoked() || o.aborted() && w.aborted() || o.endedByClose(r)
			if !allowed || !o.inTime() {
				return fail("error", "rank %d: %s", r.id, o)
			}
		}
		if r.errs.first != nil {
			return fail("log", "rank %d reports an error: %w", r.id, r.errs.first)
		}
		if slices.ContainsFunc(r.devices, func(d *soft.Device) bool { return softtest.Early(d) > 0 }) {
			return fail("early", "rank %d was sent something before its queue pair was connected", r.id)
		}
		if r.dead || w.plan.Params.CloseMid {
			if err := w.checkHistory(r, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHanging finds operations that a loss should have ended: those with a lost rank as peer, and
// receives from any source, or from any rank of a Comm, which every loss of such a rank ends that
// was not acknowledged before they were posted. A flush has no peer. Matched operations have ended
// too, as the world has settled. And a rank must have detected the losses that the plan caused.
func (w *world) checkHanging() error {
	for _, r := range w.ranks {
		if r.dead {
			continue
		}
		failed := r.engine.Failed()
		for _, o := range r.active {
			if (o.isRecv() || o.look) && o.retired(r.id) {
				return fail("hanging", "rank %d has closed its Comm, and still waits: %s", r.id, o)
			}
			acked := func(rank int) bool { return o.peer < 0 && w.wentBack(r, o) && slices.Contains(r.acked[o.comm], rank) }
			if slices.ContainsFunc(failed, func(rank int) bool { return o.endsWith(rank) && !acked(rank) }) {
				return fail("hanging", "rank %d lost %v, and still waits: %s", r.id, failed, o)
			}
			if o.fromGroup() && slices.ContainsFunc(failed, func(rank int) bool { return !o.accepts(rank) }) {
				w.cov[GroupSpared]++
			}
		}
		for _, p := range w.ranks {
			if (p.dead || w.cut[pair(r.id, p.id)] && w.knows(r.id, p.id).begun) && !slices.Contains(failed, p.id) {
				return fail("unseen loss", "rank %d lost %v, and has not seen that rank %d is lost", r.id, failed, p.id)
			}
		}
	}
	return nil
}

// returned reports whether receives of a rank went back to their places, and so were posted again.
func (r *rank) returned() bool { return r.returns() != 0 }

func (r *rank) returns() int {
	if r.engine == nil { // of a test
		return 0
	}
	return int(r.engine.Metrics().Returned)
}

// endsWith reports whether the loss of a rank ends the operation.
func (o *op) endsWith(rank int) bool {
	return !o.flush && o.accepts(rank) && (o.peer >= 0 || !slices.Contains(o.acked, rank))
}

// faults reports whether the plan makes connections fail.
func (w *world) faults() bool { return len(w.cut) > 0 || w.killed() || w.failingQPs() > 0 }

// failingQPs is how many queue pairs of each device may fail.
func (w *world) failingQPs() (n int) {
	if w.plan.Params.TM.KillQPAt > 0 {
		n++
	}
	if w.plan.Params.TM.KillQPPart > 0 {
		n++
	}
	return n
}

func (w *world) killed() bool {
	return slices.ContainsFunc(w.ranks, func(r *rank) bool { return r.dead })
}

// checkLosses finds ranks that lost each other without a fault of the plan. Each device may let
// some queue pairs fail. A connection is counted once, however often this is called. Who has
// aborted the job deregisters what peers may be reading, for which a NIC ends the connection: those
// losses are not counted.
func (w *world) checkLosses() error {
	excused := w.aborted() && w.plan.Params.NIC
	for _, r := range w.ranks {
		if r.dead {
			continue
		}
		for _, peer := range r.engine.Failed() {
			if !w.ranks[peer].dead && !w.cut[pair(r.id, peer)] {
				w.cut[pair(r.id, peer)] = true
				if !excused {
					w.cov[KilledQPs]++
				}
			}
		}
	}
	allowed := 0
	for _, r := range w.ranks {
		allowed += w.failingQPs() * len(r.devices)
	}
	if failures := w.cov[KilledQPs]; failures > uint64(allowed) {
		return fail("loss", "%d connections failed that nobody has cut, of all that failed: %v", failures, w.cut)
	}
	return nil
}

// apart reports whether two ranks have lost each other.
func (w *world) apart(a, b int) bool { return w.cut[pair(a, b)] || w.ranks[a].dead || w.ranks[b].dead }

// concerned reports whether a rank has lost the peer of an operation, or one that may be.
func (w *world) concerned(r *rank, o *op) bool {
	return slices.ContainsFunc(w.ranks, func(p *rank) bool { return o.accepts(p.id) && w.apart(r.id, p.id) })
}

// checkOutcome checks that an operation that failed had a reason.
func (w *world) checkOutcome(r *rank, o *op) error {
	concerned := w.concerned(r, o)
	switch {
	case !o.inTime():
	case o.probed != nil && o.received() && o.st != *o.probed && !w.wentBack(r, o):
		return fail("probe", "rank %d: a probe has found %+v, and then: %s", r.id, *o.probed, o)
	case o.look && o.err == nil && !w.sent(r, o):
		return fail("probe", "rank %d: a probe has found %+v, which nobody has sent: %s", r.id, o.st, o)
	case o.err == nil, o.received(), o.canceled(), o.revoked(), w.full(o):
		return nil
	case o.aborted() && r.stopped:
		return nil
	case o.endedByClose(r):
		return nil
	case o.lost() && concerned:
		return w.checkPeerError(r, o)
	case o.withdrawn() && w.vanished(r, o):
		return nil
	}
	return fail("error", "rank %d: %s", r.id, o)
}

// endedByClose reports whether the operation is a receive or a probe that the close of its Comm has
// ended.
func (o *op) endedByClose(r *rank) bool {
	return errors.Is(o.err, errRetired) && !o.send && o.retired(r.id)
}

// full reports whether an operation was refused because of the plan's SendLimit.
func (w *world) full(o *op) bool { return o.refused() && w.plan.Params.SendLimit > 0 }

// checkPeerError checks that the error of a lost peer names lost ranks that end the operation.
func (w *world) checkPeerError(r *rank, o *op) error {
	lost, ok := errors.AsType[*progress.PeerError](o.err)
	if !ok || len(lost.Ranks) == 0 {
		return fail("error", "rank %d: the error names no rank: %s", r.id, o)
	}
	for _, peer := range lost.Ranks {
		// A message that was taken is its sender's, also where that loss was acknowledged before.
		if !w.apart(r.id, peer) || !o.endsWith(peer) && !(o.takes && o.accepts(peer)) {
			return fail("error", "rank %d: rank %d is not the one that the operation lost: %s", r.id, peer, o)
		}
		for c, acked := range r.acked {
			if o.peer < 0 && c != o.comm && slices.Contains(acked, peer) {
				w.cov[AckedElsewhere]++
			}
		}
	}
	return nil
}

// inTime reports whether contexts have ended where the outcome claims so.
func (o *op) inTime() bool {
	return (!o.canceled() || !o.call || o.expired > 0) && (!o.revoked() || o.expired > 2)
}

// flushed checks the contract of a Flush that has returned: all sends before it have ended, and
// have left this rank.
func (w *world) flushed(r *rank, flush *op) {
	for _, o := range r.ops[:flush.index] {
		if o.send && !o.done && r.early == nil {
			r.early = fail("flush", "rank %d: operation %d, a flush, has ended before: %s", r.id, flush.index, o)
		}
		o.flushed = o.send
	}
	for _, p := range r.paths {
		if !p.Drained() && !r.asked && r.early == nil {
			r.early = fail("flush", "rank %d: operation %d, a flush, has ended before everything has left", r.id, flush.index)
		}
	}
}

// aborted reports whether some rank has aborted the job.
func (w *world) aborted() bool {
	return slices.ContainsFunc(w.ranks, func(r *rank) bool { return r.aborts })
}

// checkAborted checks that an abort has reached every rank that can be reached, and has ended all
// its operations.
func (w *world) checkAborted() error {
	for _, r := range w.ranks {
		_, _, err := r.engine.Isend(-1, 0, nil).Test()
		r.stopped = errors.Is(err, progress.ErrAborted)
	}
	for _, r := range w.ranks {
		switch {
		case r.dead:
		case r.aborts && !r.stopped:
			return fail("abort", "rank %d has aborted the job and goes on", r.id)
		case r.stopped && len(r.active) > 0:
			return fail("abort", "rank %d is stopped, and still waits: %s", r.id, r.active[0])
		}
		for _, p := range w.ranks {
			if p.stopped && !r.dead && !r.stopped && !w.apart(r.id, p.id) {
				return fail("abort", "rank %d is stopped, and rank %d has not heard of it", p.id, r.id)
			}
		}
	}
	return nil
}

// checkMetrics checks that a rank has nothing left over, and that the counters of its receives add
// up.
func (w *world) checkMetrics(r *rank, m *progress.Metrics) error {
	if r.early != nil {
		return r.early
	}
	if r.stopped {
		return nil // it was aborted in the middle
	}
	left := m.PostedNow + m.UnexpectedNow + int(m.UnexpectedBytes) + int(m.QueuedBytes) + m.RequestsNow + m.ReadsNow + m.Offload.InDevice + m.Offload.Dormant
	if left != 0 {
		return fail("metrics", "rank %d: something is left: %+v", r.id, *m)
	}
	o := &m.Offload
	if won := o.Dels - o.DelsLost; o.Offloaded != o.Matched+o.ForcedDels+won {
		return fail("metrics", "rank %d: %d receives were offloaded; %d were matched, %d removed by a forced DEL, %d by a DEL", r.id, o.Offloaded, o.Matched, o.ForcedDels, won)
	}
	kept := o.KeptSmall + o.KeptOverlap + o.KeptPath + o.KeptFull + o.KeptOff
	if posted := kept + o.Offloaded - o.Promoted; w.plan.Params.Tags > 0 && (posted < r.posted || posted > r.posted+m.Returned) {
		return fail("metrics", "rank %d: %d receives were posted; %d were kept, %d offloaded, of those %d after they were kept",
			r.id, r.posted, kept, o.Offloaded, o.Promoted)
	}
	return nil
}

// checkCredit compares the credit of both ends of each pair of ranks.
func (w *world) checkCredit() error {
	for _, r := range w.ranks {
		for _, s := range w.ranks {
			used, charged, consumed := progresstest.Credit(r.engine, s.engine, r.id, s.id)
			if used != charged || charged != consumed {
				return fail("credit", "from rank %d to %d: %d bytes used, %d charged, %d given back", s.id, r.id, used, charged, consumed)
			}
		}
	}
	return nil
}

// checkTotals compares the sums of all ranks' sends and receives, if no rank was lost.
func (w *world) checkTotals() error {
	var eager, rndv, eagerGot, rndvGot, withdrawn uint64
	for _, r := range w.ranks {
		m := r.engine.Metrics()
		eager, eagerGot = eager+m.EagerSent, eagerGot+m.EagerReceived
		rndv, rndvGot = rndv+m.RndvSent, rndvGot+m.RndvReceived
		for _, o := range r.ops {
			if o.send && (o.canceled() || o.revoked()) {
				withdrawn++
			}
		}
	}
	discards := w.cov[Retires] > 0
	if eager < eagerGot || rndv < rndvGot || !discards && (eager > eagerGot || rndv > rndvGot+withdrawn) {
		return fail("metrics", "%d eager messages were sent and %d received; %d by rendezvous and %d, %d cancelled", eager, eagerGot, rndv, rndvGot, withdrawn)
	}
	return nil
}

// restLeast is the length of an engine's first rest from offloading, in receives.
const restLeast = 256

// count adds what a rank did to the coverage.
func (w *world) count(r *rank, m *progress.Metrics) {
	o, c := &m.Offload, &w.cov
	c[Matched] += o.Matched
	c[ForcedDels] += o.ForcedDels
	c[DelsWon] += o.Dels - o.DelsLost
	c[DelsLost] += o.DelsLost
	c[Promotions] += o.Promoted
	c[ListFull] += o.KeptFull
	c[Overlaps] += o.KeptOverlap
	c[Rests] += o.Rests
	c[RestsOver] += o.KeptOff / restLeast
	c[Syncs] += o.Syncs
	c[Truncated] += m.Truncated
	c[HeldUp] += m.HeldUp
	c[Released] += m.Released
	c[Queued] += m.Queued
	c[Returned] += m.Returned
	refused := RNR
	if w.plan.Params.TM.RNREvery > 0 {
		refused = RNRAtRandom
	}
	for _, d := range r.devices {
		c[refused] += softtest.Refusals(d)
		c[CutShort] += softtest.CutShort(d)
	}
	for _, op := range r.ops {
		event := op.event()
		if c[event]++; op.parts && event == Sent {
			c[PartsSent]++
		} else if op.parts && event == Messages {
			c[PartsRead]++
		}
		if op.fromGroup() {
			op.countGroup(c)
		}
	}
}

// countGroup counts an operation from any rank of a Comm.
func (o *op) countGroup(c *Coverage) {
	switch {
	case o.look && o.slept && o.err == nil:
		c[GroupProbed]++
	case o.received():
		c[GroupRecvs]++
	case o.lost():
		c[GroupLost]++
	}
}

// event is the event that an operation counts as.
func (o *op) event() Event {
	switch {
	case o.flush:
		return Flushes
	case o.look && o.slept && o.err == nil:
		return Probed
	case o.look:
		return Probes
	case o.refused():
		return FullSends
	case o.aborted():
		return Aborted
	case errors.Is(o.err, errRetired):
		return RetiredRecvs
	case o.revoked():
		return Revoked
	case o.send && o.call && o.canceled():
		return ExpiredSends
	case o.call && o.canceled() && !o.unmatched:
		return ExpiredRecvs
	case o.send && o.canceled():
		return CanceledSends
	case o.canceled():
		return CanceledRecvs
	case o.withdrawn():
		return Withdrawn
	case o.send && o.err != nil:
		return LostSends
	case o.err != nil && !o.received():
		return LostRecvs
	case o.send:
		return Sent
	case o.takes && o.slept:
		return TakenLate
	}
	return Messages
}
