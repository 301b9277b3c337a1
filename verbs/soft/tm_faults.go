package soft

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/taglist"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// tagFaults are the faults and the quirks that a test injects into a tag queue.
type tagFaults struct {
	hook.TM
	t        *tagQueue
	rng      *rand.Rand      // of delays
	polls    int64           // passes of the device while something is delayed
	ops      fifo[delayedOp] // DelayOps
	later    []tagLater      // DelayData, DelayFIN
	slow     bool            // in Device.slow
	syncs    int             // bare SYNCs (DropSync)
	messages int             // arrived (KillQPAt, RNREvery)
	parts    int             // packets arrived that are not the first of a message (KillQPPart)
	refused  bool            // the newest message was refused (RNREvery) and will come again
}

// delayedOp is a list operation that takes effect when tagFaults.polls is due.
type delayedOp struct {
	taglist.Op
	due int64
}

// tagLater is a delayed FIN or completion.
type tagLater struct {
	due       int64         // sent or pushed when tagFaults.polls is this
	q         *queuePair    // that sends fin; nil: wc is a completion
	fin       [finSize]byte // if q is not nil
	wc        verbs.WC
	hnd       uint32 // of wc
	solicited bool   // of wc
}

// withTM implements softtest.WithTM.
func (c Config) withTM(tm hook.TM) Config {
	c.TM, c.tmFaults = TMConfig{MaxNumTags: tm.MaxNumTags, MaxOps: tm.MaxOps, MTU: tm.MTU}, nil
	if tm.MaxNumTags, tm.MaxOps, tm.MTU = 0, 0, 0; tm != (hook.TM{}) {
		c.tmFaults = &tm
	}
	return c
}

// checkFaults checks what was set; nil: nothing.
func checkFaults(f *hook.TM) error {
	if f != nil && min(f.DelayOps, f.DelayData, f.DelayFIN, f.DropSync) < 0 {
		return errors.New("TM: delays and DropSync must not be negative")
	}
	return nil
}

// inject has a new tag queue behave by tm, and returns what its list is to do of that.
func (t *tagQueue) inject(tm *hook.TM) *taglist.Quirks {
	f := &tagFaults{TM: *tm, t: t, rng: rand.New(rand.NewPCG(tm.Seed, uint64(t.d.lastSRQ)))}
	t.faults = f
	t.plain = !(f.QuirkSyncReq || f.LiveGoDormant || f.RNRWhenEmpty) && f.KillQPAt|f.RNREvery == 0
	if f.RecvUnexpected {
		t.reports = verbs.WCRecv
	}
	list := &taglist.Quirks{SyncReq: f.QuirkSyncReq, LiveGoDormant: f.LiveGoDormant, InitialCount: f.InitialCount}
	if f.Strict {
		list.Strict = f.broken
	}
	return list
}

// broken exposes a program that breaks a rule. All but V11 show in what the list returns.
func (f *tagFaults) broken(rule, what string) {
	d := f.t.d
	if d.inv.isStrict() {
		invariant.Broken(rule, "%s", what)
	}
	if rule == "V11" {
		d.event(verbs.AsyncEvent{Type: verbs.EventSRQErr, QP: f.t.s.num, Err: fail("post_srq_ops", syscall.EINVAL, rule+": "+what)})
	}
}

// arrives injects the faults of KillQPAt and RNREvery. If it returns over, the message is not
// received now; ok is that of wire.Receiver.
func (f *tagFaults) arrives(q *queuePair, l wire.Link, h *wire.Header) (over, ok bool) {
	if f.refused {
		f.refused = false
		return false, false
	}
	f.messages++
	if f.messages == f.KillQPAt {
		q.kill("KillQPAt", l, h)
		return true, true
	}
	if f.RNREvery > 0 && f.messages%f.RNREvery == 0 {
		f.refused = true
		return true, q.notReady(h)
	}
	return false, false
}

// killsAt injects the fault of KillQPPart.
func (f *tagFaults) killsAt(q *queuePair, l wire.Link, h *wire.Header) bool {
	if !q.rx.active {
		return false
	}
	f.parts++
	if f.parts != f.KillQPPart {
		return false
	}
	q.kill("KillQPPart", l, h)
	return true
}

// kill makes the queue pair fail at a packet, for a fault of that name.
func (q *queuePair) kill(knob string, l wire.Link, h *wire.Header) {
	q.d.failed(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q.num, Err: fail("receive", syscall.EIO, "the queue pair was to fail here ("+knob+")")})
	q.toErr(verbs.WCWRFlushErr, q.reclaimed, false, 0)
	if q.d.nic.silent() {
		q.d.stray(l, h, nil, 0) // this request is not answered either
	}
}

// delays takes an operation over that is to take effect later. For DropSync it marks the counts
// that get lost.
func (f *tagFaults) delays(o *taglist.Op) bool {
	if f.DropSync > 0 && o.Opcode == verbs.WRTagSync && o.Syncs() {
		f.syncs++
		o.Lost = f.syncs%f.DropSync == 0
	}
	if f.DelayOps == 0 {
		return false
	}
	f.ops.push(delayedOp{*o, f.due(f.DelayOps)})
	f.goSlow()
	return true
}

// delaysData takes over a completion that is to come later.
func (f *tagFaults) delaysData(wc *verbs.WC, hnd uint32, solicited bool) bool {
	return f.DelayData > 0 && f.postpone(tagLater{due: f.due(f.DelayData), wc: *wc, hnd: hnd, solicited: solicited})
}

// delaysFIN takes over a FIN that is to be sent later.
func (f *tagFaults) delaysFIN(q *queuePair, fin *[finSize]byte) bool {
	return f.DelayFIN > 0 && f.postpone(tagLater{due: f.due(f.DelayFIN), q: q, fin: *fin})
}

// due is up to most polls later.
func (f *tagFaults) due(most int) int64 { return f.polls + int64(f.rng.IntN(most+1)) }

// postpone delays something, and returns true.
func (f *tagFaults) postpone(it tagLater) bool {
	f.later = append(f.later, it)
	f.goSlow()
	return true
}

// goSlow has the device call tick.
func (f *tagFaults) goSlow() {
	if d := f.t.d; !f.slow {
		f.slow = true
		d.slow = append(d.slow, f)
	}
}

// tick counts a pass of the device, and ends delays. It returns true if something is still delayed.
func (f *tagFaults) tick() bool {
	f.polls++
	for f.ops.len() > 0 && f.ops.front().due <= f.polls {
		o := f.ops.front().Op
		f.ops.pop()
		f.t.execute(&o)
	}
	keep := f.later[:0]
	for i := range f.later {
		it := &f.later[i]
		switch {
		case it.due > f.polls:
			keep = append(keep, *it)
		case it.q != nil:
			it.q.dev.fins.push(it.fin)
			it.q.feed()
		default:
			f.t.cq.push(&it.wc, frees{tm: f.t, hnd: it.hnd}, it.solicited)
		}
	}
	clear(f.later[len(keep):])
	f.later = keep
	return len(keep) > 0 || f.ops.len() > 0
}

// hasten has the delayed completions of a queue pair come in the next pass: it is reset, and owes
// nothing after that.
func (f *tagFaults) hasten(q *queuePair) {
	for i := range f.later {
		if it := &f.later[i]; it.q == nil && it.wc.QPNum == q.num {
			it.due = f.polls
		}
	}
}

// forget drops the delayed FINs of a queue pair.
func (f *tagFaults) forget(q *queuePair) {
	f.later = slices.DeleteFunc(f.later, func(it tagLater) bool { return it.q == q })
}

// tickTags calls tick for all that delay something.
func (d *Device) tickTags() {
	d.slow = slices.DeleteFunc(d.slow, func(f *tagFaults) bool {
		f.slow = !f.t.s.gone && f.tick()
		return !f.slow
	})
}
