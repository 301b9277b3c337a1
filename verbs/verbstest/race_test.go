package verbstest

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// The scenarios of TMO 7.2 that a device alone can show, by number. On the loop wire here, one
// packet of 1 KiB moves on each link at each poll of its receiver, and time advances with the
// polls: every run is the same. Most are rows of the suite, played once for each configuration.

type tm = softtest.TM

func TestRace01OnePacket(t *testing.T) { play(t, testTagEager, tm{}) }
func TestRace03Rendezvous(t *testing.T) {
	play(t, testTagRndv, tm{}, tm{DelayData: 60}, tm{DelayFIN: 60})
}
func TestRace06DormantInDevice(t *testing.T) { play(t, testTagAddBehind, tm{}) }
func TestRace12StaleCounts(t *testing.T)     { play(t, testTagStaleSync, tm{}, tm{InitialCount: 65533}) }
func TestRace13CountWraps(t *testing.T) {
	play(t, testTagWrap, tm{InitialCount: 30_000})
	play(t, countsModulo, tm{})
}
func TestRace14SyncReq(t *testing.T) {
	play(t, testTagSyncReqUnexpected, tm{InitialCount: 60_000}, tm{QuirkSyncReq: true})
}
func TestRace19DelTwice(t *testing.T)         { play(t, testTagDelTwice, tm{}, tm{DelayOps: 20}) }
func TestRace27ChainFails(t *testing.T)       { play(t, testTagChainFails, tm{}) }
func TestRace28NoUntaggedBuffer(t *testing.T) { play(t, testTagRNR, tm{}) }
func TestRace29SenderGivesUp(t *testing.T)    { play(t, testTagRNRGivesUp, tm{}) }
func TestRace31FinWithoutBuffer(t *testing.T) { play(t, testTagFINBuffer, tm{}) }
func TestRace32EagerTooLong(t *testing.T)     { play(t, testTagTooLong, tm{}) }
func TestRace34RendezvousTooLong(t *testing.T) {
	play(t, testTagIncomplete, tm{}, tm{TwoIncomplete: true})
}
func TestRace35ZeroLength(t *testing.T)      { play(t, testTagZeroLength, tm{}) }
func TestRace36EmptyRendezvous(t *testing.T) { play(t, testTagZeroLength, tm{}) }
func TestRace37MatchAll(t *testing.T)        { play(t, testTagMatchesAll, tm{}) }
func TestRace38BitsOutsideMask(t *testing.T) { play(t, testTagOutsideMask, tm{}, tm{Strict: true}) }
func TestRace42TwoSources(t *testing.T)      { play(t, testTagSources, tm{}) }
func TestRace48DelDuringRendezvous(t *testing.T) {
	play(t, testTagRndvCancel, tm{}, tm{DelayOps: 2000}) // before the end of the data, and after it
}
func TestRace49BadKey(t *testing.T)      { play(t, testTagRndvRefused, tm{}) }
func TestRace53NoTagFlood(t *testing.T)  { play(t, testTagNoTagBetween, tm{}) }
func TestRace54HandleReuse(t *testing.T) { play(t, testTagHandleReuse, tm{Strict: true}) }
func TestRace55Teardown(t *testing.T)    { play(t, testTagTeardown, tm{}, tm{DelayData: 5, DelayFIN: 5}) }
func TestRace56Limit(t *testing.T)       { play(t, testTagLimit, tm{}) }

// play proves a row on devices of each configuration.
func play(t *testing.T, row any, configs ...tm) {
	for i, c := range configs {
		t.Run(strconv.Itoa(i), func(t *testing.T) { prove(t, row, onLoop(raceFabric, c).open, raceOptions(c)) })
	}
}

func raceOptions(c tm) TagOptions {
	return TagOptions{InitialCount: uint32(c.InitialCount), Strict: c.Strict, TwoIncomplete: c.TwoIncomplete,
		SyncReqOfDriver: c.QuirkSyncReq, played: true}
}

var raceFabric = softtest.FabricOptions{Seed: 1, MaxBurst: 1, MaxPayload: 1024, Step: 10 * time.Microsecond}

// loopWire opens devices on a fabric.
type loopWire struct {
	fabric *soft.Fabric
	config tm
	devs   []*soft.Device
}

func onLoop(fo softtest.FabricOptions, c tm) *loopWire {
	return &loopWire{fabric: softtest.NewFabric(fo), config: c}
}

func (l *loopWire) open(t *testing.T, n int) (out []verbs.Device) {
	for i := range n {
		d, err := soft.Open(softtest.WithTM(soft.Config{Fabric: l.fabric, Rank: i}, l.config))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		l.devs = append(l.devs, d)
		out = append(out, d)
	}
	return out
}

func newRaceRig(t *testing.T, c tm) *tagRig {
	t.Helper()
	return newTrio(t, onLoop(raceFabric, c).open, raceOptions(c), 15, 64)
}

// 2: between MATCH and DATA_VALID of a message of many packets other messages are received.
func TestRace02SeveralPackets(t *testing.T) {
	const n = 40_000
	r := newRaceRig(t, tm{})
	r.untagged(2)
	long, small := r.bbuf[:n], r.bbuf[n:]
	r.add(1, 5, exact, long)
	r.add(2, 6, exact, small)
	m := r.eager(5, 9, n)
	r.match(1, 5, 9)
	require.NotEqual(t, m[n:], long[n-verbs.TMHSize:], "the data is there already")
	other := r.short(r.c, r.qc, 6, 1, 8)
	r.matched(2, 6, 1, other[verbs.TMHSize:], small)
	r.c.send(r.qc, inline(76, 0, []byte{0}))
	r.noTag([]byte{0})
	r.unexpected(r.short(r.c, r.qc, 5, 2, 8)) // the entry is consumed
	r.completes(verbs.WC{WRID: 1, Opcode: verbs.WCTMRecv, Flags: flagData, ByteLen: n, QPNum: r.qb.Num()})
	require.True(t, bytes.Equal(m[verbs.TMHSize:], long))
}

// 11: a lost SYNC makes matching slower, not wrong; the next operation reports the count.
func TestRace11SyncLost(t *testing.T) {
	r := newRaceRig(t, tm{DropSync: 1})
	r.miss(9)
	r.count-- // the device's value
	h := r.add(1, 5, exact, r.bbuf)
	r.count++
	r.sync()
	r.miss(5)
	r.force(h)
	r.add(2, 5, exact, r.bbuf)
	r.hit(2, 5)
	r.b.none()
}

// 22: a host posts a forced DEL of an entry that a message can match at that moment. A strict
// device reports it in either order; if the message is first, its completion finds a slot that does
// not belong to its receive.
func TestRace22ForcedDelOfLive(t *testing.T) {
	consumed := 0
	const seeds = 12
	for seed := range uint64(seeds) {
		r := newRaceRig(t, tm{Strict: true, DelayOps: 6, Seed: seed})
		r.untagged(2)
		r.force(r.add(1, 5, exact, r.bbuf))
		r.unpolled(func() {
			for range seed { // in the end the DEL is always first
				r.poll()
			}
		})
		m := r.short(r.a, r.qa, 5, 0, 8)
		r.until("the message", func() bool { return len(r.b.got) > 0 })
		if r.b.got[0].WRID == 1 {
			r.b.want(1, verbs.WCGeneralErr)
			consumed++
		} else {
			r.handled(m)
		}
		ev := r.b.wantEvent(verbs.EventSRQErr)
		require.ErrorIs(t, ev.Err, syscall.EINVAL)
		require.ErrorContains(t, ev.Err, "V11")

		// For a dormant entry it is correct (TMO 5.3).
		r.miss(6)
		r.count--
		h := r.add(2, 5, exact, r.bbuf)
		r.count++
		r.force(h)
		r.b.none()
		r.noEvents()
	}
	require.NotContains(t, []int{0, seeds}, consumed, "always the same is first")
}

// 30: an expected message needs no untagged buffer. A device that requires one makes the sender
// wait, does not use the buffer, and delivers once.
func TestRace30ExpectedWithoutBuffers(t *testing.T) {
	play(t, testTagExpected, tm{})
	r := newRaceRig(t, tm{RNRWhenEmpty: true})
	r.add(1, 5, exact, r.bbuf)
	m := r.short(r.a, r.qa, 5, 2, 8)
	r.b.none()
	r.untagged(1)
	r.matched(1, 5, 2, m[verbs.TMHSize:], r.bbuf)
	r.miss(6) // the buffer is still there
	r.b.none()
}

// 44: the connection breaks when the data of a rendezvous was read and before its FIN: the receive
// has ended, the sender's queue pair fails, and no FIN comes, then or when its time passes.
func TestRace44FinLost(t *testing.T) {
	l := onLoop(raceFabric, tm{DelayFIN: 5000})
	r := newTrio(t, l.open, raceOptions(tm{}), 15, 64)
	r.finBuffer()
	r.add(1, 5, exact, r.bbuf[:3000])
	r.add(2, 6, exact, r.bbuf)
	r.rndv(5, 9, 3000)
	r.halves(1, 5, 9, 3000)
	r.a.none()
	softtest.Break(l.fabric, l.devs[0], l.devs[1])
	r.a.want(77, verbs.WCRetryExcErr) // the request, whose acknowledgement is lost too
	r.a.want(8, verbs.WCWRFlushErr)
	r.inErr(r.qa, r.qb)
	for range 5000 {
		r.poll()
	}
	r.a.none()
	r.hitByOther(2, 6)
	r.b.none()
}

// 47: during the device's read the sender dies, its queue pair fails, or it deregisters the memory,
// by packets or directly: the receive ends once, with an error, and nothing more is written. Other
// connections and entries are unaffected.
func TestRace47SenderGoneDuringRead(t *testing.T) {
	for name, end := range map[string]func(l *loopWire, r *tagRig){
		"dies":        func(l *loopWire, r *tagRig) { softtest.Kill(l.fabric, l.devs[0]); r.a.dead = true },
		"fails":       func(_ *loopWire, r *tagRig) { r.ok(r.qa.Modify(stateAlone(verbs.QPSErr))) },
		"deregisters": func(_ *loopWire, r *tagRig) { r.ok(r.amr.Dereg()) },
	} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, direct %v", name, direct), func(t *testing.T) {
				fo := raceFabric
				fo.Direct = direct
				l := onLoop(fo, tm{})
				r := newTrio(t, l.open, raceOptions(tm{}), 15, 64)
				senderGone(r, func() { end(l, r) })
			})
		}
	}
}

func senderGone(r *tagRig, end func()) {
	const n = 900_000
	h := r.add(1, 5, exact, r.bbuf[:n])
	r.add(2, 6, exact, r.bbuf)
	r.rndv(5, 9, n)
	r.match(1, 5, 9)
	r.until("a part of the data", func() bool { return bytes.Equal(r.bbuf[:3000], r.abuf[rndvOffset:][:3000]) })
	require.Zero(r.t, r.bbuf[n-1])
	end()
	w := r.b.want(1, verbs.WCTMRndvIncomplete)
	require.Equal(r.t, r.qb.Num(), w.QPNum)
	r.inErr(r.qb)
	require.Zero(r.t, r.bbuf[n-1], "it reads no more")
	r.hitByOther(2, 6)
	require.Equal(r.t, verbs.QPSRTS, state(r.qd))
	r.del(h, verbs.WCTMErr)
	r.b.none()
}

// Not in TMO 7.2: an unexpected message that is cut short by the failure of its queue pair is not
// counted: it will never be reported, so that no entry would become live any more.
func TestUnexpectedCutShort(t *testing.T) {
	r := newRaceRig(t, tm{})
	r.untagged(2)
	r.eager(6, 0, 10_000)
	r.unpolled(func() {
		for range 3 { // it has a buffer, and more of it follows
			r.poll()
		}
	})
	r.ok(r.qb.Modify(stateAlone(verbs.QPSErr)))
	r.b.want(untaggedID, verbs.WCWRFlushErr)
	r.add(1, 5, exact, r.bbuf)
	r.hitByOther(1, 5) // a dormant entry would leave it unexpected
}

// countsModulo: the counts are compared modulo 2^16: they are equal if 65536 unexpected messages
// are not handled, and differ for 65535.
func countsModulo(r *tagRig) {
	r.flood(1, func(verbs.WCFlags) {})
	r.add(1, 5, exact, r.bbuf) // dormant: nothing is handled
	r.flood(1<<16-2, func(verbs.WCFlags) {})
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.stocked()
	r.unexpected(r.eager(5, 0, 8))
	r.sent()
	r.tell(verbs.OpsWR{Opcode: verbs.WRTagSync})
	r.hit(1, 5)
}
