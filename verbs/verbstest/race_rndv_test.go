package verbstest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// request is an RVH for n bytes of the first source.
func (r *raceRig) request(n int) verbs.RVH {
	return verbs.RVH{VA: r.amr.Addr() + rndvOffset, RKey: r.amr.RKey(), Len: uint32(n)}
}

// onlyMatch takes the MATCH of a rendezvous.
func (r *raceRig) onlyMatch(id, tag uint64, ctx uint32) {
	r.t.Helper()
	w := r.b.want(id, verbs.WCSuccess)
	require.Equal(r.t, verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMMatch, Tag: tag, Priv: ctx, QPNum: w.QPNum}, w)
}

// onlyData takes the DATA_VALID of a rendezvous.
func (r *raceRig) onlyData(id uint64, n int) {
	r.t.Helper()
	w := r.b.want(id, verbs.WCSuccess)
	require.Equal(r.t, verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMDataValid, ByteLen: uint32(n), QPNum: w.QPNum}, w)
}

// 3: MATCH, then the data, then FIN at the sender and DATA_VALID at the receiver, in either order,
// but not before the data.
func TestRace03Rendezvous(t *testing.T) {
	for _, tm := range []softtest.TM{{}, {DelayData: 60}, {DelayFIN: 60}} {
		const n = 20_000
		r := newRaceRig(t, tm)
		fmr, fin := r.a.mem(64)
		r.a.recv(r.qa, 1, sge(fmr, fin))
		r.add(1, 5, exact, r.bbuf[:n])
		r.rndvOn(r.qa, 5, 9, r.request(n))
		r.onlyMatch(1, 5, 9)
		want := r.abuf[rndvOffset:][:n]
		require.False(t, bytes.Equal(want, r.bbuf[:n]))
		r.until("both ends", func() bool {
			if len(r.a.got)+len(r.b.got) > 0 {
				require.True(t, bytes.Equal(want, r.bbuf[:n]), "an end before the data")
			}
			return len(r.a.got) > 0 && len(r.b.got) > 0
		})
		r.wantFIN(1, 5, 9, fin)
		r.onlyData(1, n)
		r.b.none()
	}
}

// 17, 48: a DEL during the data transfer of a rendezvous fails, before or after its end; the data
// arrives.
func TestRace48DelDuringRendezvous(t *testing.T) {
	for first, tm := range map[uint64]softtest.TM{70: {}, 1: {DelayOps: 400}} {
		const n = 20_000
		r := newRaceRig(t, tm)
		h := r.add(1, 5, exact, r.bbuf[:n])
		r.rndvOn(r.qa, 5, 9, r.request(n))
		r.onlyMatch(1, 5, 9)
		wr := r.operation(verbs.WRTagDel, 70)
		wr.Handle = h
		r.post(wr)
		ends := map[uint64]verbs.WC{}
		for i := range 2 {
			w := r.b.next()
			ends[w.WRID] = w
			require.Equal(t, i == 0, w.WRID == first)
		}
		require.Equal(t, verbs.WCTMErr, ends[70].Status)
		require.Equal(t, verbs.WCFlagTMDataValid, ends[1].Flags)
		require.True(t, bytes.Equal(r.abuf[rndvOffset:][:n], r.bbuf[:n]))
		r.b.none()
		r.fits(15)
	}
}

// 33, 34: a rendezvous that is too long leaves its headers in the buffer, as far as they fit, and
// is finished by software.
func TestRace34RendezvousTooLong(t *testing.T) {
	for _, two := range []bool{false, true} {
		r := newRaceRig(t, softtest.TM{TwoIncomplete: two})
		for id, n := range []int{0, 1, 15, 16, 31, 32, 99} {
			clear(r.bbuf[:200])
			h := r.add(uint64(id), 5, exact, r.bbuf[:n])
			m := r.rndvOn(r.qa, 5, 9, r.request(100))
			w := r.b.want(uint64(id), verbs.WCTMRndvIncomplete)
			require.Equal(t, !two, w.Flags&verbs.WCFlagTMDataValid != 0)
			if two {
				require.Equal(t, verbs.WCFlagTMDataValid, r.b.want(uint64(id), verbs.WCSuccess).Flags)
			}
			k := min(n, 32)
			require.Equal(t, m[:k], r.bbuf[:k])
			require.Equal(t, make([]byte, 100), r.bbuf[k:k+100], "behind the headers, buffer of %d", n)
			r.del(h, verbs.WCTMErr)
		}
		r.add(50, 5, exact, r.bbuf)
		r.hit(50, 5, r.bbuf) // the QP still works
		r.a.none()           // no FIN by the device
		r.fits(15)
	}
}

// 36: an empty rendezvous ends like any other without a read: its key is ignored, and its sender
// need not answer.
func TestRace36EmptyRendezvous(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	fmr, fin := r.a.mem(64)
	clear(r.bbuf[:64])
	for i, buf := range [][]byte{r.bbuf[:0], r.bbuf[:64]} {
		id := uint64(i)
		r.a.recv(r.qa, id, sge(fmr, fin))
		r.add(id, 5, exact, buf)
		r.rndvOn(r.qa, 5, 3, verbs.RVH{VA: 1, RKey: r.amr.RKey() ^ 1<<20})
		r.a.dead = true // its device is not polled
		r.onlyMatch(id, 5, 3)
		r.onlyData(id, 0)
		r.a.dead = false
		r.wantFIN(id, 5, 3, fin)
	}
	require.Equal(t, make([]byte, 64), r.bbuf[:64])
	require.Equal(t, verbs.QPSRTS, r.qb.State())
}

// 47: during the device's read the sender dies, its queue pair fails, or it deregisters the memory,
// by packets or directly: the receive ends once, with an error. Other connections and entries are
// unaffected.
func TestRace47SenderGoneDuringRead(t *testing.T) {
	for name, end := range map[string]func(r *raceRig){
		"dies":      func(r *raceRig) { softtest.Kill(r.fabric, r.devs[0]); r.a.dead = true },
		"fails":     func(r *raceRig) { r.toErr(r.qa) },
		"withdraws": func(r *raceRig) { r.ok(r.amr.Dereg()) },
	} {
		t.Run(name, func(t *testing.T) { senderGone(t, raceFabric, end) })
		direct := raceFabric
		direct.Direct = true
		t.Run(name+", direct", func(t *testing.T) { senderGone(t, direct, end) })
	}
}

func senderGone(t *testing.T, fo softtest.FabricOptions, end func(r *raceRig)) {
	const n = 900_000
	r := newRaceRigOn(t, fo, softtest.TM{}, 15, 64)
	r.untagged(1)
	clear(r.bbuf)
	r.add(1, 5, exact, r.bbuf[:n])
	r.add(2, 6, exact, r.bbuf[n:])
	r.rndvOn(r.qa, 5, 9, r.request(n))
	r.onlyMatch(1, 5, 9)
	r.until("a part of the data", func() bool { return bytes.Equal(r.bbuf[:3000], r.abuf[rndvOffset:][:3000]) })
	require.Zero(t, r.bbuf[n-1])
	end(r)
	w := r.b.want(1, verbs.WCTMRndvIncomplete)
	require.Equal(t, r.qb.Num(), w.QPNum)
	r.until("ERR", func() bool { return r.qb.State() == verbs.QPSErr })
	require.Zero(t, r.bbuf[n-1], "it reads no more")
	r.whole(2, 6, 1, r.short(r.c, r.qc, 6, 1, 8), r.bbuf[n:])
	require.Equal(t, verbs.QPSRTS, r.qd.State())
	r.b.none()
	r.fits(15)
}

// 49: the request names memory without a valid key: both queue pairs fail, the receive ends with an
// error, and the device raises an event.
func TestRace49BadKey(t *testing.T) {
	for _, spoil := range []func(h *verbs.RVH){
		func(h *verbs.RVH) { h.RKey ^= 1 << 20 },
		func(h *verbs.RVH) { h.VA -= 1 << 30 },
		func(h *verbs.RVH) { h.VA += 1 << 20 },
	} {
		r := newRaceRig(t, softtest.TM{})
		r.untagged(1)
		r.add(1, 5, exact, r.bbuf[:100])
		r.add(2, 6, exact, r.bbuf[100:])
		at := r.request(100)
		spoil(&at)
		r.rndvOn(r.qa, 5, 1, at)
		r.onlyMatch(1, 5, 1)
		r.b.want(1, verbs.WCTMRndvIncomplete)
		require.Equal(t, r.qb.Num(), r.b.wantEvent(verbs.EventQPAccessErr).QP)
		require.Equal(t, verbs.QPSErr, r.qb.State())
		r.until("the sender's QP in ERR", func() bool { return r.qa.State() == verbs.QPSErr })
		r.whole(2, 6, 1, r.short(r.c, r.qc, 6, 1, 8), r.bbuf[100:])
		r.b.none()
		r.fits(15)
	}
}
