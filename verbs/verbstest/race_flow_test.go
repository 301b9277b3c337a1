package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Missing buffers, and buffers that are too short.

// 28: an unexpected message waits for an untagged buffer, and so do later ones of its source; it is
// delivered once and counted once. Other sources are unaffected.
func TestRace28NoUntaggedBuffer(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	behind, other := r.bbuf[:8], r.bbuf[100:108]
	r.add(1, 5, exact, behind)
	r.add(2, 8, exact, other)
	first := r.short(r.a, r.qa, 6, 1, 8)
	second := r.short(r.a, r.qa, 5, 2, 8)
	third := r.short(r.a, r.qa, 6, 3, 8)
	r.whole(2, 8, 4, r.short(r.c, r.qc, 8, 4, 8), other)
	r.b.none() // for many times the RNR timer
	r.untagged(1)
	r.unexpected(0, first)
	r.whole(1, 5, 2, second, behind)
	r.b.none()
	r.untagged(1)
	r.unexpected(1, third)
	r.b.none()
	require.Equal(t, verbs.QPSRTS, r.qa.State())
	r.count += 2
	r.add(3, 9, exact, r.bbuf) // any other count would leave it dormant
	r.hit(3, 9, r.bbuf)
}

// 29: a sender with finite retries gives up; the receiver has not counted the message and loses
// nothing else.
func TestRace29SenderGivesUp(t *testing.T) {
	for retries := range uint8(3) {
		r := newRaceRig(t, softtest.TM{})
		conf := r.source()
		conf.rnr, conf.rnrSet = retries, true
		qa, _ := r.connect(r.a, r.b, conf, r.conf())
		r.add(1, 5, exact, r.bbuf)
		r.a.send(qa, inline(1, 0, r.message(verbs.TMHEager, 6, 0, 8)))
		r.a.send(qa, inline(2, 0, r.message(verbs.TMHEager, 5, 0, 8)))
		r.a.want(1, verbs.WCRNRRetryExcErr)
		r.a.want(2, verbs.WCWRFlushErr)
		require.Equal(t, verbs.QPSErr, qa.State())
		r.b.none()
		r.hit(1, 5, r.bbuf) // by another QP of the same device
		r.add(2, 7, exact, r.bbuf)
		r.whole(2, 7, 3, r.short(r.c, r.qc, 7, 3, 8), r.bbuf)
		r.untagged(1)
		r.b.none()
	}
}

// 30: an expected message needs no untagged buffer. A device that requires one makes the sender
// wait, does not use the buffer, and delivers once.
func TestRace30ExpectedWithoutBuffers(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.add(1, 5, exact, r.bbuf)
	r.hit(1, 5, r.bbuf)

	r = newRaceRig(t, softtest.TM{RNRWhenEmpty: true})
	r.add(1, 5, exact, r.bbuf)
	m := r.short(r.a, r.qa, 5, 2, 8)
	r.b.none()
	r.untagged(1)
	r.whole(1, 5, 2, m, r.bbuf)
	r.miss(0, 6) // the buffer is still there
	r.b.none()
}

// 31: the FIN finds no untagged buffer at a sender with a tag-matching SRQ; its sends end later,
// none is lost.
func TestRace31FinWithoutBuffer(t *testing.T) {
	const n, size = 3, 5000
	r := newRaceRig(t, softtest.TM{})
	cq, srq := r.a.tagSRQ(7, 16)
	conf := r.source()
	conf.srq, conf.cq = srq, cq
	tx, _ := r.connect(r.a, r.b, conf, r.conf())
	r.a.cq = cq
	mr, buf := r.a.mem(64)
	for i := range uint64(n) {
		r.add(i, 5, exact, r.bbuf[i*size:][:size])
	}
	for i := range uint64(n) {
		r.rndvOn(tx, 5, 40+uint32(i), verbs.RVH{VA: r.amr.Addr() + rndvOffset, RKey: r.amr.RKey(), Len: size})
	}
	for ended := 0; ended < n; {
		w := r.b.next()
		require.Equal(t, verbs.WCSuccess, w.Status)
		if w.Flags&verbs.WCFlagTMDataValid != 0 {
			require.Equal(t, r.abuf[rndvOffset:][:size], r.bbuf[w.WRID*size:][:size])
			ended++
		}
	}
	for i := range uint64(n) {
		r.a.none()
		r.a.srqRecv(srq, i, sge(mr, buf))
		r.wantFIN(i, 5, 40+uint32(i), buf)
	}
	r.a.none()
	require.Equal(t, verbs.QPSRTS, tx.State())
}

// 32: an eager message longer than its buffer, even if only by its last packet, ends both QPs, and
// frees the entry. Others are unaffected.
func TestRace32EagerTooLong(t *testing.T) {
	for _, n := range []int{1, 240, 5000} {
		r := newRaceRig(t, softtest.TM{})
		r.untagged(1)
		clear(r.bbuf[:6000])
		r.add(1, 5, exact, r.bbuf[:n-1])
		r.add(2, 6, exact, r.bbuf[6000:])
		r.eager(5, 0, n)
		r.short(r.a, r.qa, 6, 0, 8)
		w := r.b.want(1, verbs.WCLocLenErr)
		require.Equal(t, r.qb.Num(), w.QPNum)
		r.a.want(77, verbs.WCRemInvReqErr)
		r.a.want(77, verbs.WCWRFlushErr)
		require.Equal(t, [2]verbs.QPState{verbs.QPSErr, verbs.QPSErr}, [2]verbs.QPState{r.qa.State(), r.qb.State()})
		require.Zero(t, r.bbuf[n-1])
		r.whole(2, 6, 1, r.short(r.c, r.qc, 6, 1, 8), r.bbuf[6000:])
		r.b.none()
		r.fits(15)
	}
}

// 56: one event for each arming of the limit, even if it is crossed repeatedly.
func TestRace56Limit(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(8)
	k := 0
	take := func(events int) {
		t.Helper()
		r.miss(k, 6)
		k++
		r.settle()
		require.Len(t, r.b.evs, events)
	}
	for range 3 {
		r.ok(r.srq.Modify(verbs.SRQAttr{Limit: 7}, verbs.SRQLimit))
		take(0) // 7 are left
		take(1)
		require.Equal(t, verbs.EventSRQLimitReached, r.b.evs[0].Type)
		require.Equal(t, r.srq.Num(), r.b.evs[0].QP)
		take(1)
		r.untagged(3)
		take(1) // below it again, not armed
		r.untagged(1)
		r.b.evs = nil
	}
	// Fewer are posted: the event comes at once.
	r.ok(r.srq.Modify(verbs.SRQAttr{Limit: 9}, verbs.SRQLimit))
	require.Equal(t, verbs.EventSRQLimitReached, r.b.wantEvent(verbs.EventSRQLimitReached).Type)
	take(0)
}

// Not in TMO 7.2: an unexpected message that is cut short by the failure of its queue pair is not
// counted: it will never be reported, so that no entry would become live any more.
func TestUnexpectedCutShort(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(2)
	r.eager(6, 0, 10_000)
	r.move(3) // it has a buffer, and more of it follows
	r.toErr(r.qb)
	require.Equal(t, uint64(untaggedID), r.b.want(untaggedID, verbs.WCWRFlushErr).WRID)
	r.add(1, 5, exact, r.bbuf)
	// A dormant entry would leave it unexpected, in ubuf.
	r.whole(1, 5, 3, r.short(r.c, r.qc, 5, 3, 8), r.bbuf)
}
