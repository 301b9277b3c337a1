package progress

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// inCredit is how many messages without bytes each rank of a tight cluster allows each other. The
// windows do not grow: the pool is too small for that.
const inCredit = 4

func tightLimit(n int) int64 { return int64(2 * n * inCredit * unexpected.RecordCost) }

func tight(t *testing.T, n int, opts fakeOpts) *cluster {
	c := newCluster(t, n, Config{Manual: true, UnexpectedLimit: tightLimit(n)}, opts)
	_, _, window := c.e[0].peers[1].in.Usage()
	require.EqualValues(t, inCredit*unexpected.RecordCost, window)
	return c
}

// flood sends messages without bytes.
func (c *cluster) flood(src, dst int, tag uint64, count int) (reqs []Request) {
	for range count {
		reqs = append(reqs, c.e[src].Isend(dst, tag, nil))
	}
	return reqs
}

// holdUp sends one message more than there is credit for. Nobody waits for any of them.
func (c *cluster) holdUp(src, dst int) Request {
	reqs := c.flood(src, dst, 1, inCredit+1)
	for _, r := range reqs[:inCredit] {
		succeeded(c.t, r)
	}
	open(c.t, reqs[inCredit])
	require.True(c.t, c.e[src].peers[dst].out.HeldUp())
	return reqs[inCredit]
}

// waiting is how many sends have not gone.
func (c *cluster) waiting(src, dst int) int {
	return c.e[src].peers[dst].out.Len()
}

// balanced checks everything that flow control counts, at all ranks that are there.
func (c *cluster) balanced() {
	c.t.Helper()
	for i := range c.e {
		if !c.net.nodes[i].dead {
			c.balancedAt(i)
		}
	}
}

func (c *cluster) balancedAt(rank int) {
	c.t.Helper()
	e := c.e[rank]
	var committed, kept int64
	var held []int
	now := 0
	for j := range e.peers {
		in, out := &e.peers[j].in, &e.peers[j].out
		charged, consumed, _ := in.Usage()
		committed += in.Committed()
		kept += int64(charged - consumed)
		if in.HeldUp() {
			held = append(held, j)
		}
		if out.HeldUp() {
			now++
			require.False(c.t, out.Empty(), "nothing is held up from %d to %d", rank, j)
		} else {
			require.Zero(c.t, out.Wants())
		}
	}
	require.Equal(c.t, committed, e.memory.Committed(), "rank %d", rank)
	require.Equal(c.t, kept, e.Metrics().UnexpectedBytes, "rank %d", rank)
	require.ElementsMatch(c.t, held, heldUpAt(e), "rank %d", rank)
	require.Equal(c.t, now, e.m.HeldNow, "rank %d", rank)
}

// free checks that nothing is held up any more and everybody knows.
func (c *cluster) free() {
	c.t.Helper()
	c.balanced()
	for i, e := range c.e {
		require.Zero(c.t, e.m.HeldNow, "rank %d", i)
		require.Empty(c.t, heldUpAt(e), "rank %d", i)
	}
}

// heldUpAt is the ranks that are held up at a rank.
func heldUpAt(e *Engine) (ranks []int) {
	for _, r := range e.memory.HeldUp() {
		ranks = append(ranks, r.Rank)
	}
	return ranks
}

// flowMsg is a message of flow control as it was delivered.
type flowMsg struct {
	kind ctrlKind
	id   uint32
	want flow.Want
}

// watch notes the messages of flow control that a rank gets.
func (c *cluster) watch(dst int) *[]flowMsg {
	log := new([]flowMsg)
	c.net.onDeliver = func(to int, p *packet) {
		if p.kind != pkCtrl || to != dst {
			return
		}
		m, err := decodeCtrl(p.payload)
		require.NoError(c.t, err)
		f := flowMsg{kind: m.kind, id: m.id}
		if m.kind == ctrlWant {
			f.want, err = decodeWant(m)
			require.NoError(c.t, err)
		}
		*log = append(*log, f)
	}
	return log
}

// takeAll takes messages of one size in order, each with its seed.
func (c *cluster) takeAll(src, dst int, tag uint64, count, size int) {
	c.t.Helper()
	for i := range count {
		require.Equal(c.t, fill(size, byte(i)), c.take(src, dst, tag), "message %d", i)
	}
}

// What is held up stays what it is, in its order; sends to another rank go at once; the peer hears
// of it once, and of its end.
func TestHeldUpKeepsProtocol(t *testing.T) {
	c := tight(t, 3, fakeOpts{})
	log := c.watch(1)
	size := func(i int) int { return []int{0, 8, 256, 100}[i%4] }
	var sends []Request
	for i := range 40 {
		sends = append(sends, c.e[0].Isend(1, 7, fill(size(i), byte(i))))
	}
	succeeded(t, c.e[0].Isend(2, 7, fill(8, 0)))
	c.step()
	require.Equal(t, 38, c.waiting(0, 1))
	require.Equal(t, []int{0}, heldUpAt(c.e[1]))
	require.Empty(t, c.e[2].memory.HeldUp())
	c.balanced()

	for i := range sends {
		require.Equal(t, fill(size(i), byte(i)), c.take(0, 1, 7))
	}
	waitAll(t, sends)
	m := c.e[0].Metrics()
	require.Zero(t, m.RndvSent)
	require.EqualValues(t, 1, m.HeldUp)
	require.Equal(t, []flowMsg{{kind: ctrlHeld, id: 1}, {kind: ctrlHeld, id: 2}}, *log)
	c.free()
	c.takeAll(0, 2, 7, 1, 8)
}

// The cancel that empties the queue ends it too, and the next time is another.
func TestCancelEndsHeldUp(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	log := c.watch(1)
	first := c.holdUp(0, 1)
	second := c.e[0].Isend(1, 1, nil)
	c.step()
	for _, r := range []Request{first, second} {
		require.Equal(t, []int{0}, heldUpAt(c.e[1]))
		require.Equal(t, 1, c.e[0].Metrics().HeldNow)
		r.Cancel()
		canceled(t, r)
		c.step()
	}
	c.free()
	third := c.e[0].Isend(1, 1, nil)
	c.step()
	require.Equal(t, []flowMsg{{kind: ctrlHeld, id: 1}, {kind: ctrlHeld, id: 2}, {kind: ctrlHeld, id: 3}}, *log)
	require.EqualValues(t, 2, c.e[0].Metrics().HeldUp)
	c.takeAll(0, 1, 1, inCredit+1, 0)
	succeeded(t, third)
	c.free()
	c.quiet()
}

// Far more messages than there is credit for lie before the one that is wanted: they come, in
// order, and nothing that is behind it. The receive is posted before its sender is held up, while
// HELD is under way, or afterwards.
func TestWantedBehindUnwanted(t *testing.T) {
	const count = 20
	for _, when := range []string{"before", "under way", "after"} {
		for size, fits := range map[int]int{8: 3, 1000: 4} {
			t.Run(fmt.Sprintf("%s/%d", when, size), func(t *testing.T) {
				c := tight(t, 2, fakeOpts{})
				buf := make([]byte, size)
				var wanted Request
				post := func(now string) {
					if when == now {
						wanted = c.e[1].Irecv(AnySource, 2, exact, buf)
					}
				}
				post("before")
				var sends []Request
				for i := range count {
					sends = append(sends, c.e[0].Isend(1, 1, fill(size, byte(i))))
				}
				sends = append(sends, c.e[0].Isend(1, 2, fill(size, 100)), c.e[0].Isend(1, 3, fill(size, 0)))
				post("under way")
				if when == "after" {
					c.step()
					require.Equal(t, count+2-fits, c.waiting(0, 1))
					require.Equal(t, []int{0}, heldUpAt(c.e[1]))
				}
				post("after")
				c.step()
				succeeded(t, wanted)
				require.Equal(t, fill(size, 100), buf)
				require.Equal(t, 1, c.waiting(0, 1), "what is behind it stays held up")
				m := c.e[1].Metrics()
				require.EqualValues(t, 1, m.WantsSent)
				require.Equal(t, count, m.UnexpectedNow)
				m = c.e[0].Metrics()
				require.EqualValues(t, 1, m.WantsReceived)
				require.EqualValues(t, count+1-fits, m.Released)
				c.balanced()
				c.takeAll(0, 1, 1, count, size)
				c.takeAll(0, 1, 3, 1, size)
				waitAll(t, sends)
				c.free()
				c.quiet()
			})
		}
	}
}

// WANTs are used up one for one and in their order: a message that two of them match uses up the
// earlier. They answer HELD, come later, or are together at a sender that had no room meanwhile.
func TestWantsAreUsedUp(t *testing.T) {
	type recv struct{ tag, mask, got uint64 } // got 0: nothing
	for name, q := range map[string]struct {
		queue []uint64 // tags of the messages that wait
		recvs [2]recv
		left  int // of queue
	}{
		"equal receives":       {[]uint64{2, 2, 2, 2, 2}, [2]recv{{2, exact, 2}, {2, exact, 2}}, 3},
		"either, then another": {[]uint64{0x22, 0x21, 0x22, 0x21}, [2]recv{{0x20, 0xF0, 0x22}, {0x21, exact, 0x21}}, 2},
		"either, then its tag": {[]uint64{0x22, 0x21, 0x22, 0x21}, [2]recv{{0x20, 0xF0, 0x22}, {0x22, exact, 0x22}}, 1},
		"one too few":          {[]uint64{0x22, 0x21}, [2]recv{{0x20, 0xF0, 0x22}, {0x22, exact, 0}}, 1},
	} {
		for _, when := range []string{"early", "late", "together"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				c := tight(t, 2, fakeOpts{})
				var recvs []Request
				post := func() {
					for _, r := range q.recvs {
						recvs = append(recvs, c.e[1].Irecv(0, r.tag, r.mask, nil))
					}
				}
				if when == "early" {
					post()
				}
				c.flood(0, 1, 1, inCredit)
				for _, tag := range q.queue {
					c.flood(0, 1, tag, 1)
				}
				c.step()
				if when != "early" {
					post()
				}
				if when == "together" {
					c.net.opts.room = -1
					c.step()
					require.Equal(t, len(recvs), c.e[0].peers[1].out.Wants())
					c.net.opts.room = 0
				}
				c.step()
				unused := 0
				for i, r := range q.recvs {
					if r.got == 0 {
						open(t, recvs[i])
						unused++
					} else {
						require.Equal(t, r.got, statusOf(t, recvs[i]).Tag)
					}
				}
				require.Equal(t, unused, c.e[0].peers[1].out.Wants())
				require.Equal(t, q.left, c.waiting(0, 1))
				require.EqualValues(t, len(q.queue)-q.left, c.e[0].Metrics().Released)
				require.EqualValues(t, len(recvs), c.e[1].Metrics().WantsSent)
				c.balanced()
			})
		}
	}
}

// Sixteen receives are named. With a seventeenth everything is wanted, until the queue is empty;
// then all is forgotten.
func TestManyReceives(t *testing.T) {
	for _, count := range []int{flow.Slots, flow.Slots + 1} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/early=%v", count, early), func(t *testing.T) {
				c := tight(t, 2, fakeOpts{})
				log := c.watch(0)
				var recvs []Request
				post := func(now bool) {
					for i := range count * int(boolBit(early == now)) {
						recvs = append(recvs, c.e[1].Irecv(AnySource, 100+uint64(i), exact, nil))
					}
				}
				post(true)
				sends := c.flood(0, 1, 1, inCredit+9)
				c.step()
				post(false)
				c.step()
				var slots, expected []uint8
				for _, m := range *log {
					slots = append(slots, m.want.Slot)
				}
				for i := range flow.Slots {
					expected = append(expected, uint8(i))
				}
				switch {
				case count == flow.Slots:
				case early:
					expected = []uint8{flow.All}
				default:
					expected = append(expected, flow.All)
				}
				require.Equal(t, expected, slots)
				if count == flow.Slots {
					require.Equal(t, 9, c.waiting(0, 1))
					for _, r := range sends {
						r.Cancel()
					}
					c.step()
				}
				require.Zero(t, c.waiting(0, 1))
				c.free()

				for _, r := range recvs {
					r.Cancel()
				}
				for i := range count {
					c.flood(0, 1, 100+uint64(i), 1)
				}
				c.step()
				require.Equal(t, count, c.waiting(0, 1), "what was wanted is so no more")
				c.balanced()
			})
		}
	}
}

// A held up send that fails is no message: the WANT that it would have used up is for the next.
func TestFailedSendUsesNothingUp(t *testing.T) {
	c := tight(t, 2, fakeOpts{})
	first := c.holdUp(0, 1)
	bad := c.e[0].Isend(1, 2, fill(1000, 1))
	good := c.e[0].Isend(1, 2, nil)
	c.step()
	errNoRegion := errors.New("no memory")
	c.net.nodes[0].noRegion = errNoRegion
	r := c.e[1].Irecv(0, 2, exact, nil)
	c.step()
	succeeded(t, first, good, r)
	_, err := ended(t, bad)
	require.ErrorIs(t, err, errNoRegion)
	c.balanced()
}

// The slot of a receive that has ended names the next; those of receives that wait are not touched.
func TestSlotsOfWants(t *testing.T) {
	for i := range uint64(flow.Slots) {
		c := tight(t, 2, fakeOpts{})
		c.holdUp(0, 1)
		c.step()
		recvs := map[uint64]Request{}
		for tag := range uint64(flow.Slots) {
			recvs[100+tag] = c.e[1].Irecv(0, 100+tag, exact, nil)
		}
		recvs[105].Cancel()
		recvs[105] = c.e[1].Irecv(0, 105, exact, nil)
		c.step()
		require.False(t, c.e[1].peers[0].in.All())
		require.EqualValues(t, flow.Slots+1, c.e[1].Metrics().WantsSent)
		require.Equal(t, flow.Slots, c.e[0].peers[1].out.Wants())
		c.flood(0, 1, 100+i, 1)
		c.step()
		_, err := ended(t, recvs[100+i])
		require.NoError(t, err, "tag %d", 100+i)
		c.free()
	}
}
