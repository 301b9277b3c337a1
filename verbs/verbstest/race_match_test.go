package verbstest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// 1: an expected message of one packet is one completion, with tag and priv, and leaves only its
// payload in the buffer.
func TestRace01OnePacket(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	for i, n := range []int{1, 8, 1000, 1008} {
		id, tag := uint64(i), uint64(i)<<40
		clear(r.bbuf)
		r.add(id, tag, exact, r.bbuf[:n+50])
		m := r.message(verbs.TMHEager, tag, 0xfffffff0+uint32(i), n)
		r.a.send(r.qa, verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(r.amr, m)})
		r.whole(id, tag, 0xfffffff0+uint32(i), m, r.bbuf)
		require.Equal(t, make([]byte, 60), r.bbuf[n:n+60])
	}
	r.b.none()
}

// 2: between MATCH and DATA_VALID of a message of many packets other messages are received.
func TestRace02SeveralPackets(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(4)
	const n = 40_000
	long, small := r.bbuf[:n], r.bbuf[n:]
	r.add(1, 5, exact, long)
	r.add(2, 6, exact, small)
	m := r.eager(5, 9, n)
	w := r.b.want(1, verbs.WCSuccess)
	require.Equal(t, verbs.WC{WRID: 1, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMMatch, Tag: 5, Priv: 9, QPNum: w.QPNum}, w)
	require.NotEqual(t, m[n:], long[n-verbs.TMHSize:], "the data is there already")
	other := r.short(r.c, r.qc, 6, 1, 8)
	r.whole(2, 6, 1, other, small)
	r.class(r.c, r.qc, verbs.TMHNoTag, 5)
	require.Equal(t, verbs.WCTMNoTag, r.b.want(untaggedID, verbs.WCSuccess).Opcode)
	r.unexpected(1, r.short(r.c, r.qc, 5, 2, 8)) // the entry is consumed
	w = r.b.want(1, verbs.WCSuccess)
	require.Equal(t, verbs.WC{WRID: 1, Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMDataValid, ByteLen: n, QPNum: w.QPNum}, w)
	require.True(t, bytes.Equal(m[verbs.TMHSize:], long))
}

// 5, 6: classification before the host polls is final; an entry added meanwhile is dormant.
func TestRace06DormantInDevice(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(4)
	one := r.short(r.a, r.qa, 5, 1, 8)
	r.move(3)
	wr := r.operation(verbs.WRTagAdd, 70)
	wr.Add = r.tagAdd(1, 5, exact, r.bbuf)
	r.post(wr)
	two := r.short(r.a, r.qa, 5, 2, 8)
	r.move(3)
	r.unexpected(0, one)
	r.b.want(70, verbs.WCSuccess)
	r.unexpected(1, two)
	r.count += 2
	r.del(wr.Handle, verbs.WCSuccess)
	r.b.none()
	r.fits(15)
}

// 11: a lost SYNC makes matching slower, not wrong; the next operation reports the count.
func TestRace11SyncLost(t *testing.T) {
	r := newRaceRig(t, softtest.TM{DropSync: 1})
	r.untagged(4)
	r.unexpected(0, r.short(r.a, r.qa, 9, 0, 8))
	h := r.add(1, 5, exact, r.bbuf) // with the old count
	r.count++
	r.sync()
	m := r.short(r.a, r.qa, 5, 1, 8)
	r.unexpected(1, m)
	r.count++
	// A forced DEL: the entry is dormant.
	wr := verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count}
	r.post(&wr)
	r.add(2, 5, exact, r.bbuf)
	r.hit(2, 5, r.bbuf)
	r.b.none()
}

// 12: counts that are too small, or repeated, make nothing live; only the right one does, also past
// 65535.
func TestRace12StaleCounts(t *testing.T) {
	for _, initial := range []uint16{0, 65533} {
		r := newRaceRig(t, softtest.TM{InitialCount: initial})
		r.untagged(16)
		first := r.count
		for k := range 5 {
			r.unexpected(k, r.short(r.a, r.qa, 6, 0, 8))
		}
		r.add(1, 5, exact, r.bbuf)
		k := 5
		for _, behind := range []uint32{0, 3, 3, 2, 4, 1} { // how many of the five are not reported
			r.count = first + behind
			r.sync()
			r.unexpected(k, r.short(r.a, r.qa, 5, 0, 8))
			k++
		}
		r.count = first + uint32(k) - 1
		r.sync()
		r.sync()
		r.miss(k, 5)
		r.count = first + uint32(k) + 1
		r.sync()
		r.hit(1, 5, r.bbuf)
	}
}

// 35: an empty message, an empty buffer, and both.
func TestRace35ZeroLength(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	clear(r.bbuf[:64])
	for i, buf := range [][]byte{r.bbuf[:64], r.bbuf[:0]} {
		r.add(uint64(i), 5, exact, buf)
		r.whole(uint64(i), 5, 3, r.short(r.a, r.qa, 5, 3, 0), buf)
	}
	r.do(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: verbs.TagAdd{RecvWRID: 7, Tag: 5, Mask: exact}}, verbs.WCSuccess)
	r.whole(7, 5, 4, r.short(r.a, r.qa, 5, 4, 0), nil)
	require.Equal(t, make([]byte, 64), r.bbuf[:64])

	r.add(8, 5, exact, r.bbuf[:0])
	r.short(r.a, r.qa, 5, 4, 1) // then it is scenario 32
	r.b.want(8, verbs.WCLocLenErr)
	r.a.want(77, verbs.WCRemInvReqErr)
}

// 37: an entry of mask 0 and tag 0 matches every tagged message, in list order, and nothing else.
func TestRace37MatchAll(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(4)
	for id := range uint64(3) {
		r.add(id, 0, 0, r.bbuf)
	}
	r.class(r.a, r.qa, verbs.TMHNoTag, 40)
	r.class(r.a, r.qa, verbs.TMHFin, 32)
	for k := range uint64(2) {
		require.Equal(t, verbs.WCTMNoTag, r.b.want(untaggedID+k, verbs.WCSuccess).Opcode)
	}
	for id, tag := range []uint64{exact, 0, 1 << 63} {
		r.hit(uint64(id), tag, r.bbuf)
	}
	r.miss(2, 0)
}

// 38: a raw entry whose tag has bits outside its mask never matches, and does not affect others; a
// strict device refuses it.
func TestRace38BitsOutsideMask(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(8)
	zero := r.add(1, 7, 0, r.bbuf)
	some := r.add(2, 0xf1, 0xf0, r.bbuf)
	for k, tag := range []uint64{7, 0, 0xf1, 0xf0} {
		r.miss(k, tag)
	}
	r.add(3, 0, 0, r.bbuf)
	r.hit(3, 7, r.bbuf)
	r.del(zero, verbs.WCSuccess)
	r.del(some, verbs.WCSuccess)
	r.fits(15)

	s := newRaceRig(t, softtest.TM{Strict: true})
	_, err := s.srq.PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: s.tagAdd(1, 7, 0, s.bbuf)})
	require.Error(t, err)
	s.fits(15)
}

// 42: messages of two sources, most of many packets, consume the entries in order of arrival, and
// those of one source in the order of sending.
func TestRace42TwoSources(t *testing.T) {
	const each, room = 20, 8000
	r := newRaceRigOf(t, softtest.TM{}, 63, 200)
	mr, buf := r.c.mem(each * room)
	for id := range uint64(2 * each) {
		r.add(id, 0, 0, r.bbuf[id*room:][:room])
	}
	message := func(from []byte, src, k int) []byte {
		m := from[k*room:][:verbs.TMHSize+(k*3779+src*2500)%(room-verbs.TMHSize)]
		copy(m, pattern(len(m), src*100+k))
		verbs.TMH{Opcode: verbs.TMHEager, Tag: uint64(src)<<32 | uint64(k)}.Put(m)
		return m
	}
	for k := range each {
		r.a.send(r.qa, verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(r.amr, message(r.abuf, 0, k))})
		r.c.send(r.qc, verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(mr, message(buf, 1, k))})
	}
	var next [2]uint64
	turns, last := 0, -1
	from := map[uint64][]byte{}
	for matched, ended := uint64(0), 0; ended < 2*each; {
		w := r.b.next()
		if w.Flags&verbs.WCFlagTMMatch != 0 {
			src := int(w.Tag >> 32)
			require.Equal(t, matched, w.WRID, "the oldest entry is next")
			require.Equal(t, next[src], w.Tag&0xffff, "messages of source %d", src)
			from[w.WRID] = message([][]byte{r.abuf, buf}[src], src, int(next[src]))
			next[src]++
			matched++
			if src != last {
				turns++
				last = src
			}
		}
		if w.Flags&verbs.WCFlagTMDataValid != 0 {
			require.True(t, bytes.Equal(from[w.WRID][verbs.TMHSize:], r.bbuf[w.WRID*room:][:w.ByteLen]), "receive %d", w.WRID)
			ended++
		}
	}
	require.Greater(t, turns, each/2, "the sources did not interleave")
}

// 53: NO_TAG messages are not counted and do not change the order of the others.
func TestRace53NoTagFlood(t *testing.T) {
	r := newRaceRig(t, softtest.TM{})
	r.untagged(16)
	bufs := [][]byte{r.bbuf[:8], r.bbuf[100:108], r.bbuf[200:208]}
	flood := func() {
		for i := range 12 {
			r.class([]*node{r.a, r.c}[i%2], []verbs.QP{r.qa, r.qc}[i%2], verbs.TMHNoTag, 1+i*15)
		}
	}
	for round := range uint32(20) {
		for i, buf := range bufs {
			r.add(uint64(i), 5, exact, buf) // live at once: the flood was not counted
		}
		var sent [][]byte
		for i := range uint32(4) {
			flood()
			sent = append(sent, r.short(r.a, r.qa, 5, round*8+i, 8))
		}
		r.flooded(48, sent, bufs)
		r.count++
		r.untagged(1)
	}
}

// flooded takes the completions of NO_TAG messages, and those of tagged ones in their order: the
// last is unexpected.
func (r *raceRig) flooded(plain int, sent, bufs [][]byte) {
	r.t.Helper()
	tagged := 0
	for tagged < len(sent) || plain > 0 {
		w := r.b.next()
		switch {
		case w.Opcode == verbs.WCTMNoTag:
			plain--
			r.untagged(1)
			continue
		case tagged < len(bufs):
			require.Equal(r.t, bothFlags, w.Flags)
			require.EqualValues(r.t, tagged, w.WRID)
			require.Equal(r.t, sent[tagged][verbs.TMHSize:], bufs[tagged])
		default:
			require.Zero(r.t, w.Flags&bothFlags)
			require.Equal(r.t, sent[tagged], received(w, r.ubuf[w.WRID%untaggedID%untaggedDepth*untaggedSize:]))
		}
		tagged++
	}
	require.Zero(r.t, plain)
}
