package verbstest

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// The list and its operations.

// 19: a handle is deleted twice before either outcome was polled, and after its slot was reused:
// the second DEL is TM_ERR or EINVAL, and affects no other entry.
func TestRace19DelTwice(t *testing.T) {
	for _, delay := range []int{0, 20} {
		r := newRaceRigOf(t, softtest.TM{DelayOps: delay}, 2, 64)
		for i := range uint64(6) {
			h := r.add(10+i, 5, exact, r.bbuf[:50])
			other := r.add(20+i, 6, exact, r.bbuf[50:])
			for k := range uint64(2) {
				wr := r.operation(verbs.WRTagDel, 70+k)
				wr.Handle = h
				r.post(wr)
			}
			r.b.want(70, verbs.WCSuccess)
			r.b.want(71, verbs.WCTMErr)
			r.del(r.add(40+i, 5, exact, r.bbuf[:50]), verbs.WCSuccess) // slots are used in turn
			again := r.add(30+i, 5, exact, r.bbuf[:50])
			require.Equal(t, h&3, again&3, "the slot is the same")
			for _, flags := range []verbs.OpsFlags{0, verbs.OpsSignaled} {
				wr := verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: flags, WRID: 72}
				if _, err := r.srq.PostSRQOps(&wr); err != nil {
					r.errno(err, syscall.EINVAL)
				} else if flags != 0 {
					r.b.want(72, verbs.WCTMErr)
				}
			}
			require.NotEqual(t, h, again)
			r.fits(0) // it has not freed a slot either
			r.hit(30+i, 5, r.bbuf)
			r.hit(20+i, 6, r.bbuf[50:])
			r.del(other, verbs.WCTMErr)
		}
		r.b.none()
		r.fits(2)
	}
}

// 22: a host posts a forced DEL of an entry that a message can match at that moment. A strict
// device reports it in either order; if the message is first, its completion finds a slot that does
// not belong to its receive.
func TestRace22ForcedDelOfLive(t *testing.T) {
	consumed := 0
	const seeds = 12
	for seed := range uint64(seeds) {
		r := newRaceRig(t, softtest.TM{Strict: true, DelayOps: 6, Seed: seed})
		r.untagged(2)
		h := r.add(1, 5, exact, r.bbuf)
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count})
		r.move(int(seed)) // in the end the DEL is always first
		m := r.short(r.a, r.qa, 5, 0, 8)
		switch w := r.b.next(); w.WRID {
		case 1:
			require.Equal(t, verbs.WCGeneralErr, w.Status)
			consumed++
		default:
			require.Equal(t, m, received(w, r.ubuf))
			r.count++
		}
		ev := r.b.wantEvent(verbs.EventSRQErr)
		require.ErrorIs(t, ev.Err, syscall.EINVAL)
		require.ErrorContains(t, ev.Err, "V11")

		// For a dormant entry it is correct (TMO 5.3).
		r.short(r.a, r.qa, 6, 0, 8)
		r.b.next()
		h = r.add(2, 5, exact, r.bbuf)
		r.count++
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count})
		r.b.none()
		require.Empty(t, r.b.evs)
	}
	require.NotContains(t, []int{0, seeds}, consumed, "always the same is first")
}

// 27: a chain fails in the middle: operations before take effect, with their handles; those behind
// are untouched.
func TestRace27ChainFails(t *testing.T) {
	for name, c := range map[string]struct {
		tags, ops uint32
		errno     syscall.Errno
		spoil     func(wr *verbs.OpsWR)
	}{
		"opcode":    {15, 64, syscall.EINVAL, func(wr *verbs.OpsWR) { wr.Opcode = 9 }},
		"SGEs":      {15, 64, syscall.EINVAL, func(wr *verbs.OpsWR) { wr.Add.SGList = append(wr.Add.SGList, wr.Add.SGList...) }},
		"list full": {2, 64, syscall.ENOMEM, func(*verbs.OpsWR) {}},
		"ops full":  {15, 2, syscall.ENOMEM, func(*verbs.OpsWR) {}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaceRigOf(t, softtest.TM{}, c.tags, c.ops)
			r.untagged(2)
			var wr [4]*verbs.OpsWR
			for i := range wr {
				wr[i] = r.operation(verbs.WRTagAdd, 70+uint64(i))
				wr[i].Handle, wr[i].Add = 0xdead, r.tagAdd(uint64(i), uint64(i), exact, r.bbuf[i*100:][:50])
				if i > 0 {
					wr[i-1].Next = wr[i]
				}
			}
			c.spoil(wr[2])
			bad, err := r.srq.PostSRQOps(wr[0])
			r.errno(err, c.errno)
			require.Same(t, wr[2], bad)
			require.EqualValues(t, 0xdead, wr[3].Handle)
			r.b.want(70, verbs.WCSuccess)
			r.b.want(71, verbs.WCSuccess)
			r.hit(1, 1, r.bbuf[100:])
			r.miss(0, 2)
			r.miss(1, 3)
			r.del(wr[0].Handle, verbs.WCSuccess)
			r.del(wr[1].Handle, verbs.WCTMErr)
			r.fits(int(c.tags))
		})
	}
}

// 54: the list is kept full and entries leave it in any order, matched and deleted, for many times
// its size: each completion is that of the right receive, and slots are reused oldest first.
func TestRace54HandleReuse(t *testing.T) {
	const tags, rounds = 4, 3000
	r := newRaceRigOf(t, softtest.TM{Strict: true}, tags, 16)
	type posted struct {
		id  uint64
		hnd uint32
	}
	var live []posted
	var freed []uint32 // freed slots, oldest first
	slot := func(h uint32) uint32 { return h & 7 }
	for h := range uint32(tags + 1) {
		freed = append(freed, h)
	}
	for id := range uint64(rounds) {
		h := r.add(id, id, exact, r.bbuf[slot(uint32(id))*100:][:50])
		require.Equal(t, freed[0], slot(h), "round %d", id)
		freed = freed[1:]
		live = append(live, posted{id, h})
		if len(live) < tags {
			continue
		}
		k := int(id*7/3) % tags
		p := live[k]
		live = append(live[:k:k], live[k+1:]...)
		if id%3 == 0 {
			r.del(p.hnd, verbs.WCSuccess)
		} else {
			m := r.short(r.c, r.qc, p.id, uint32(id), 8)
			r.whole(p.id, p.id, uint32(id), m, r.bbuf[slot(uint32(p.id))*100:])
		}
		freed = append(freed, slot(p.hnd))
	}
	for _, p := range live {
		r.del(p.hnd, verbs.WCSuccess)
	}
	r.fits(tags)
}

// 55: teardown while entries are in the list, a rendezvous is being read, another message has
// arrived in part and completions are unpolled: QPs to ERR, their last event, every receive has at
// most one end, then QPs, SRQ and CQ, in that order only.
func TestRace55Teardown(t *testing.T) {
	r := newRaceRig(t, softtest.TM{DelayData: 5, DelayFIN: 5})
	cq := r.b.tagCQ(64)
	srq, err := r.b.pd.CreateSRQ(tagAttr(cq, 15, 64))
	r.ok(err)
	r.srq, r.b.cq = srq, cq
	var qps, from []verbs.QP
	for range 2 {
		qa, qb := r.connect(r.a, r.b, r.source(), r.conf())
		from, qps = append(from, qa), append(qps, qb)
	}
	for id := range uint64(6) {
		r.add(id, id, exact, r.bbuf[id*100_000:][:100_000])
	}
	r.untagged(2)
	r.short(r.a, from[0], 0, 0, 8)   // whole, unpolled
	r.short(r.a, from[0], 100, 0, 8) // unexpected, unpolled
	r.rndvOn(from[0], 1, 1, r.request(100_000))
	m := r.message(verbs.TMHEager, 2, 0, 60_000)
	r.a.send(from[1], verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(r.amr, m)})
	r.move(20)
	r.errno(srq.Destroy(), syscall.EBUSY)
	r.errno(cq.Destroy(), syscall.EBUSY)
	for _, qp := range qps {
		r.toErr(qp)
	}
	last := map[uint32]bool{}
	for range qps {
		last[r.b.wantEvent(verbs.EventQPLastWQEReached).QP] = true
	}
	require.Len(t, last, 2)
	r.settle()
	ends := map[uint64]int{}
	for _, w := range r.b.got {
		if w.WRID < untaggedID && w.Flags&verbs.WCFlagTMDataValid != 0 {
			ends[w.WRID]++
		}
	}
	require.Equal(t, map[uint64]int{0: 1, 1: 1, 2: 1}, ends)
	wr := r.operation(verbs.WRTagSync, 70)
	r.post(wr) // completes into a queue that is polled no more
	r.errno(srq.Destroy(), syscall.EBUSY)
	for _, qp := range qps {
		r.ok(qp.Destroy())
	}
	r.b.free = r.b.free[:len(r.b.free)-len(qps)]
	r.errno(cq.Destroy(), syscall.EBUSY)
	r.ok(srq.Destroy())
	_, err = srq.PostSRQOps(r.operation(verbs.WRTagSync, 71))
	r.errno(err, syscall.EINVAL) // the cleanup of the test destroys the CQ
}
