package progress

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// 4: a message that is here before its receive is delivered from the queue, and counted; the device
// never hears of the receive.
func TestRace04MessageFirst(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.send(5, 8, 1)
	r.step()
	require.EqualValues(t, 1, r.e.off.handled)
	req, buf := r.recv(5, exact, 8)
	r.got(req, buf, 8, 1)
	require.Zero(t, r.m().Offloaded)
}

// 5: a receive is posted while a message for it lies unpolled: it is dormant, gets the message and
// leaves the device by force.
func TestRace05MessageUnpolled(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.dormant(5, 5)
	r.release()
	r.got(req, buf, 8, 99)
	require.EqualValues(t, 1, r.m().ForcedDels)
	require.Empty(t, r.dev.byID)
}

// 5: the same with a rendezvous, which software reads.
func TestRace05RendezvousUnpolled(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.dev.holdCQ = true
	s := r.send(5, 1000, 1)
	r.e.Poll()
	req, buf := r.recv(5, exact, 1000)
	r.e.Poll()
	require.Len(t, r.dev.list, 1)
	r.release()
	r.got(req, buf, 1000, 1)
	succeeded(t, s)
	require.EqualValues(t, 1, r.m().ForcedDels)
	r.quiet()
}

// 6: as 5, and a second message comes before the first is polled: it is unexpected too, and stays
// behind the first.
func TestRace06SecondBeforePoll(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.dormant(5, 5)
	r.send(5, 8, 2)
	r.release()
	r.got(req, buf, 8, 99)
	require.Equal(t, 1, r.e.Metrics().UnexpectedNow)
	require.Zero(t, r.m().Matched)
}

// 7: as 5 with two receives and two messages: first to first, second to second; then the device
// matches again.
func TestRace07TwoByTwo(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	one, buf1 := r.dormant(5, 5)
	two, buf2 := r.recv(5, exact, 64)
	r.send(5, 8, 2)
	r.release()
	r.got(one, buf1, 8, 99)
	r.got(two, buf2, 8, 2)
	require.EqualValues(t, 2, r.m().ForcedDels)
	require.Zero(t, r.m().Matched)
	r.matches() // live again
}

// 8: an unexpected message of another kind leaves a live receive live.
func TestRace08LiveStaysLive(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.recv(5, exact, 64)
	r.e.Poll()
	r.dev.holdCQ = true
	r.send(9, 8, 1)
	r.send(5, 8, 2)
	r.release()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().Matched)
}

// 9: a receive that stays dormant, because nothing tells the device, gets its message from
// software.
func TestRace09DormantWithoutSync(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.dev.noSync = true
	req, buf := r.dormant(5, 9)
	r.release()
	require.Equal(t, 1, r.m().Dormant)
	r.send(5, 8, 2)
	r.step()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().ForcedDels)
	require.Zero(t, r.m().Matched)
}

// 10: a SYNC makes what is dormant live.
func TestRace10SyncWakes(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.dormant(5, 9)
	r.release()
	require.EqualValues(t, 1, r.m().Syncs)
	require.Zero(t, r.m().Dormant)
	r.send(5, 8, 2)
	r.step()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().Matched)
}

// 11: a SYNC that gets lost costs the device a match, and nothing else; the next operation tells
// what it was to tell.
func TestRace11SyncLost(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.dev.loseSync = true
	req, buf := r.dormant(5, 9)
	r.release()
	require.EqualValues(t, 1, r.m().Syncs)
	require.Zero(t, r.m().Dormant, "the engine knows no better")
	require.False(t, r.dev.list[0].live)
	r.send(5, 8, 2)
	r.step()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().ForcedDels)
	require.Zero(t, r.m().Matched)
	r.matches()
}

// 13: the counters pass 65535 twice, by one at a time and by far; matching goes on, and every 2^14
// messages there is a SYNC.
func TestRace13CountWraps(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4, count: 65530})
	early := func() {
		r.send(6, 0, 0)
		r.e.Poll()
		_, err := r.e.Recv(bg, AnySource, 6, exact, nil)
		require.NoError(t, err)
	}
	for range 12 {
		early()
		r.matches()
	}
	for i := range 70_000 {
		early()
		require.EqualValues(t, (i+1)>>14, r.m().Syncs, "message %d", i)
	}
	r.matches()
	req, buf := r.dormant(5, 5) // behind by one across all that
	r.release()
	r.got(req, buf, 8, 99)
	r.matches()
	matched := r.m().Matched
	req, buf = r.dormant(5, 9)
	r.release() // a SYNC wakes it
	r.send(5, 8, 1)
	r.step()
	r.got(req, buf, 8, 1)
	require.Equal(t, matched+1, r.m().Matched)
}

// 14: the device is told of 2^14 messages even where nothing else would be posted.
func TestRace14SyncBound(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4, count: 65530})
	buf := make([]byte, 8)
	for i := range 1<<14 + 10 {
		r.send(5, 8, byte(i))
		r.e.Poll()
		_, err := r.e.Recv(bg, AnySource, 5, exact, buf)
		require.NoError(t, err)
	}
	r.e.Poll()
	require.EqualValues(t, 1, r.m().Syncs)
	r.matches()
}

// 38: bits of a tag outside its mask do not count: the device gets the receive without them, and
// matches.
func TestRace38BitsOutsideMask(t *testing.T) {
	for i, tag := range []uint64{7, exact} {
		for _, mask := range []uint64{0, 0xf0} {
			r := newRace(t, Config{}, fakeOpts{tags: 4})
			req, buf := r.recv(tag, mask, 64)
			r.step()
			require.Equal(t, tag&mask, r.dev.list[0].tag)
			r.send(tag&mask|0x100+uint64(i), 8, 1)
			r.step()
			r.got(req, buf, 8, 1)
			require.EqualValues(t, 1, r.m().Matched)
		}
	}
}

// 39: wildcard and exact receives take messages in the order of posting, whichever of them software
// keeps.
func TestRace39WildcardAndExact(t *testing.T) {
	for _, masks := range [][2]uint64{{6, exact}, {exact, 6}} {
		for _, sizes := range [][2]int{{64, 64}, {10, 64}, {64, 10}, {10, 10}} {
			r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 4})
			p := r.post(spec{4, masks[0], sizes[0]}, spec{4, masks[1], sizes[1]})
			r.step()
			p.getAll(4, 4)
		}
	}
}

// 40: while software keeps a receive from any source, a later one that overlaps it is kept too.
func TestRace40AnySourceInSoftware(t *testing.T) {
	r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 4})
	p := r.post(spec{0, 0, 10}, spec{4, exact, 64})
	r.step()
	require.Zero(t, r.m().Offloaded)
	require.EqualValues(t, 1, r.m().KeptSmall)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	p.gets(0, 4)
	require.EqualValues(t, 1, r.m().Promoted)
	p.gets(1, 4)
	require.EqualValues(t, 1, r.m().Matched)
}

// 41: receives that overlap nothing go to the device around one that software keeps.
func TestRace41Unrelated(t *testing.T) {
	r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 4})
	p := r.post(spec{0, exact, 64}, spec{1, exact, 10}, spec{2, exact, 64})
	require.EqualValues(t, 2, r.m().Offloaded)
	r.step()
	p.getAll(0, 1, 2)
	require.EqualValues(t, 2, r.m().Matched)
}

// 42: messages of two sources find receives from any source in their list, in software, and not at
// all yet: those of one source stay in order, whatever becomes of each.
func TestRace42TwoSources(t *testing.T) {
	var matched, early, kept uint64
	for seed := range uint64(20) {
		c := newCluster(t, 3, Config{Manual: true, OffloadMin: 32}, fakeOpts{tags: 3})
		rng := rand.New(rand.NewPCG(seed, 7))
		const each = 40
		e, dev, sent := c.e[0], c.net.nodes[0].dev, [3]int{}
		bufs := make([][]byte, 2*each)
		reqs := make([]Request, 2*each)
		for i := range reqs {
			for src := 1; src < 3; src++ {
				if sent[src] < each && rng.IntN(2) == 0 {
					c.e[src].Isend(0, 5, []byte{byte(sent[src]), byte(src)})
					sent[src]++
				}
			}
			dev.holdCQ = rng.IntN(2) == 0 // messages come between the search for them and the ADD
			bufs[i] = make([]byte, []int{8, 64}[rng.IntN(2)])
			reqs[i] = e.Irecv(AnySource, 5, exact, bufs[i])
			e.Poll()
		}
		dev.holdCQ = false
		for src := 1; src < 3; src++ {
			for ; sent[src] < each; sent[src]++ {
				c.e[src].Isend(0, 5, []byte{byte(sent[src]), byte(src)})
			}
		}
		c.step()
		var next [3]int
		for i, r := range reqs {
			st := statusOf(t, r)
			require.Equal(t, []byte{byte(next[st.Source]), byte(st.Source)}, bufs[i][:2], "seed %d, receive %d", seed, i)
			next[st.Source]++
		}
		m := e.Metrics()
		matched, early, kept = matched+m.Offload.Matched, early+m.Unexpected, kept+m.Offload.KeptSmall+m.Offload.KeptOverlap
	}
	for _, n := range []uint64{matched, early, kept} {
		require.Greater(t, n, uint64(100))
	}
}

// 52: no message comes by another path than the device's: what a rank sends to itself is matched by
// the device too.
func TestRace52OwnMessages(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	one, buf1 := r.recv(5, exact, 64)
	two, buf2 := r.recv(5, exact, 64)
	r.e.Isend(1, 5, fill(8, 1))
	r.e.Poll()
	r.send(5, 8, 2)
	r.step()
	r.got(one, buf1, 8, 1)
	r.got(two, buf2, 8, 2)
	require.EqualValues(t, 2, r.m().Matched)
	require.Zero(t, r.m().ForcedDels)
}

// 52: messages of rank 1 come to rank 0 by another path than the device's. No receive that could
// get one is in the device. One that matches a receive in there all the same names another source:
// it is not that receive's, nor anybody's, and its sender is given up.
func TestRace52OtherPath(t *testing.T) {
	for _, size := range []int{8, 1000} { // eager and rendezvous
		c := newCluster(t, 3, Config{Manual: true}, fakeOpts{tags: 8, split: true})
		e := c.e[0]
		recv := func(src int, tag uint64) (Request, []byte) {
			buf := make([]byte, 1000)
			return e.Irecv(src, tag, exact, buf), buf
		}
		own, bufO := recv(1, 1)
		anyone, bufA := recv(AnySource, 3)
		device, bufD := recv(2, 2)
		c.step()
		m := e.Metrics().Offload
		require.Equal(t, [3]uint64{2, 1, 1}, [3]uint64{m.KeptPath, m.Offloaded, uint64(m.InDevice)})
		for i, r := range []Request{own, anyone} {
			c.e[1].Isend(0, uint64(2*i+1), fill(size, byte(i)))
			c.step()
			st := statusOf(t, r)
			require.Equal(t, [2]int{1, size}, [2]int{st.Source, int(st.Len)})
			require.Equal(t, fill(size, byte(i)), [][]byte{bufO, bufA}[i][:size])
		}
		require.Zero(t, e.off.handled, "the device has counted none of them")

		c.e[1].Isend(0, 2, fill(size, 66))
		c.step()
		require.Equal(t, []int{1}, e.Failed())
		open(t, device)
		require.Equal(t, make([]byte, 1000), bufD)
		require.Zero(t, e.Metrics().UnexpectedNow)
		c.e[2].Isend(0, 2, fill(size, 2))
		c.step()
		c.got(device, bufD, size, 2)
		m = e.Metrics().Offload
		require.Equal(t, [3]uint64{1, 0, 0}, [3]uint64{m.Matched, m.ForcedDels, m.Dels})
	}
}

// 58: who looks for a message sees those that software has, whole, and leaves them; nothing that
// the device has matched, and nothing that it has not reported. The engine has no probe: peek is
// the search in the unexpected queue, nowhere else, that one would be. That a message of several
// fragments is not there before it is whole, with its length, transport/tmsrq's
// TestRace58NotBeforeWhole shows on the fragments.
func TestRace58Peek(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	peek := func(tag uint64) (n int) {
		for m := range r.e.unexp.All() {
			if m.Tag == tag {
				return len(m.Data)
			}
		}
		return -1
	}
	req, buf := r.recv(5, exact, 64)
	idle, _ := r.recv(7, exact, 64)
	r.step()
	r.dev.holdData, r.dev.holdCQ = true, true
	r.send(5, 8, 1)  // in the device
	r.send(6, 33, 2) // unexpected
	r.send(8, 12, 3) // this too
	r.e.Poll()
	require.Equal(t, [3]int{-1, -1, -1}, [3]int{peek(5), peek(6), peek(7)})
	require.Zero(t, r.e.off.handled)
	r.dev.holdCQ = false
	r.step()
	for range 2 {
		require.Equal(t, [4]int{-1, 33, -1, 12}, [4]int{peek(5), peek(6), peek(7), peek(8)})
	}
	require.Equal(t, 1, r.m().InDevice)
	r.release()
	r.got(req, buf, 8, 1)
	require.Equal(t, -1, peek(5))
	req, buf = r.recv(6, exact, 64)
	r.got(req, buf, 33, 2)
	require.Equal(t, -1, peek(6))
	idle.Cancel()
	r.step()
	canceled(t, idle)
}
