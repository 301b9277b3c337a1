package progress

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestManners(t *testing.T) {
	alone := manners{hold: holdPolls, polls: clockPolls, budget: spinMax, offers: true, keep: spinMax + spinOffer, every: spinOffer}
	perhaps := manners{hold: clockPolls, polls: clockPolls, rounds: shareRounds, offers: true}
	crowded := manners{hold: sharePolls, polls: sharePolls, rounds: shareRounds, offers: true}
	with := func(m manners, change func(m *manners)) manners { change(&m); return m }
	busy := func(m *manners) { m.rounds, m.budget, m.keep, m.every = 0, spinBusy, spinBusy+spinOffer, spinOffer }
	dear := func(m *manners) { m.rounds, m.budget, m.offers = 0, spinBusy, false }
	const limit, long = 20 * time.Microsecond, time.Millisecond
	watch := func(m *manners) { m.budget += long }
	limited := func(m *manners) { m.rounds, m.budget = 0, limit }
	for _, c := range []struct {
		name     string
		n        neighbours
		limit    time.Duration
		runnable bool
		transfer time.Duration
		want     manners
	}{
		{"nothing is known", neighbours{procs: 2}, 0, false, 0, alone},
		{"a processor for each", neighbours{ranks: 2, processors: 2, procs: 2}, 0, false, 0, alone},
		{"one rank of many hosts", neighbours{ranks: 1, processors: 64, procs: 64}, 0, false, 0, alone},
		{"other goroutines", neighbours{ranks: 2, processors: 2, procs: 2}, 0, true, 0, with(alone, busy)},
		{"one P", neighbours{ranks: 2, processors: 2, procs: 1}, 0, false, 0, perhaps},
		{"one P, other goroutines", neighbours{ranks: 2, processors: 2, procs: 1}, 0, true, 0, with(perhaps, busy)},
		{"others take turns", neighbours{ranks: 2, processors: 2, procs: 2, load: loadShared}, 0, false, 0, perhaps},
		{"others keep it", neighbours{ranks: 2, processors: 2, procs: 2, load: loadLate}, 0, false, 0, alone},
		{"one rank too many", neighbours{ranks: 3, processors: 2, procs: 2}, 0, false, 0, crowded},
		{"many", neighbours{ranks: 8, processors: 2, procs: 2}, 0, false, 0, crowded},
		{"many with one P", neighbours{ranks: 8, processors: 2, procs: 1}, 0, false, 0, crowded},
		{"pinned to one processor", neighbours{ranks: 2, processors: 1, procs: 2}, 0, false, 0, crowded},
		{"many, taking turns", neighbours{ranks: 8, processors: 2, procs: 2, load: loadShared}, 0, false, 0, crowded},
		{"many, other goroutines", neighbours{ranks: 8, processors: 2, procs: 2}, 0, true, 0, with(crowded, busy)},
		{"many, and one computes", neighbours{ranks: 8, processors: 2, procs: 2, load: loadLate}, 0, false, 0, with(crowded, dear)},
		{"one P, and one computes", neighbours{ranks: 2, processors: 2, procs: 1, load: loadLate}, 0, false, 0, with(perhaps, dear)},
		{"a limit", neighbours{ranks: 2, processors: 2, procs: 2}, limit, false, 0,
			with(alone, func(m *manners) { limited(m); m.keep = limit + spinOffer })},
		{"a limit for many", neighbours{ranks: 8, processors: 2, procs: 2}, limit, false, 0, with(crowded, limited)},
		{"a large message", neighbours{ranks: 2, processors: 2, procs: 2}, 0, false, long, with(alone, watch)},
		{"a large message where others take turns", neighbours{ranks: 2, processors: 2, procs: 2, load: loadShared}, 0, false, long,
			with(alone, watch)},
		{"a large message among many", neighbours{ranks: 8, processors: 2, procs: 2}, 0, false, long, with(crowded, watch)},
		{"a large message among many, and one computes", neighbours{ranks: 8, processors: 2, procs: 2, load: loadLate}, 0, false, long,
			with(crowded, dear)},
	} {
		require.Equal(t, c.want, c.n.manners(c.limit, c.runnable, c.transfer), c.name)
	}
	// Who parks at once polls as often whatever the load: a simulation counts polls.
	for _, ranks := range []int{1, 8} {
		for _, l := range []load{loadNone, loadShared, loadLate} {
			n := neighbours{ranks: ranks, processors: 2, procs: 2, load: l}
			require.Equal(t, clockPolls, n.manners(-1, false, 0).hold)
		}
	}
}

func TestLoadIsBelievedForAWhile(t *testing.T) {
	waits := func(n *neighbours) (waits int) {
		for was := n.load; n.load == was; waits++ {
			n.waited()
		}
		require.Equal(t, loadNone, n.load)
		return waits - 1
	}
	var n neighbours
	n.offered(offerTaken - 1)
	require.Equal(t, loadNone, n.load)
	n.offered(offerTaken)
	require.Equal(t, loadShared, n.load)
	require.Equal(t, loadWaits, waits(&n))

	n.offered(offerTaken)
	n.waited()
	n.offered(offerLate - 1)
	require.Equal(t, loadShared, n.load)
	require.Equal(t, loadWaits, waits(&n), "seen again, believed as long again")

	n.offered(offerTaken)
	n.offered(offerLate)
	n.offered(offerTaken)
	require.Equal(t, loadLate, n.load, "one that keeps the processor outweighs")
	require.Equal(t, loadWaits, waits(&n))
}

// Among eight ranks on two processors three others poll before an offer ends.
func TestLateInACrowd(t *testing.T) {
	for _, c := range []struct{ ranks, processors, times int }{
		{0, 0, 1}, {2, 2, 1}, {2, 4, 1}, {3, 2, 1}, {8, 2, 4}, {8, 0, 8},
	} {
		n := neighbours{ranks: c.ranks, processors: c.processors}
		n.offered(offerLate*time.Duration(c.times) - 1)
		require.Equal(t, loadShared, n.load, "%+v", c)
		n.offered(offerLate * time.Duration(c.times))
		require.Equal(t, loadLate, n.load, "%+v", c)
	}
}

// parkOnce has rank 0 wait until it parks, and returns how often it has offered its processor
// meanwhile; took is how long offers take.
func parkOnce(t *testing.T, c *cluster, took time.Duration) (offers int) {
	e := c.e[0]
	e.lock()
	e.wait.yield = func() time.Duration {
		offers++ // there is one waiter
		return took
	}
	e.mu.Unlock()
	parks := e.Metrics().Parks
	got := make(chan error, 1)
	go func() {
		_, err := e.Recv(bg, 1, 1, exact, nil)
		got <- err
	}()
	require.Eventually(t, func() bool { return e.Metrics().Parks > parks }, 10*time.Second, 100*time.Microsecond)
	e.lock()
	n := offers
	e.mu.Unlock()
	require.NoError(t, c.e[1].Send(bg, 0, 1, nil))
	require.NoError(t, <-got)
	return n
}

// Among more ranks than processors a waiter offers its processor each round; where there are
// enough, once, before it parks.
func TestWaiterSharesProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for ranks, most := range map[int]int{1: 1, 3: shareRounds + 1} {
		t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) {
			c := newCluster(t, 2, Config{Manual: true}, fakeOpts{})
			c.e[0].Share(ranks, 2)
			seen := 0
			for i := 0; i < 1000 && seen < most; i++ { // other goroutines of the test may want to run at times, which cuts a wait short
				n := parkOnce(t, c, 0)
				require.LessOrEqual(t, n, most)
				seen = max(seen, n)
			}
			require.Equal(t, most, seen)
			var b strings.Builder
			require.NoError(t, c.e[0].Dump(&b))
			require.Contains(t, b.String(), fmt.Sprintf("ranks that share its processors: %d on 2\n", ranks))
		})
	}
}

// One that keeps the processor is offered it once, and then not for as many waits as that is
// believed.
func TestWaiterKeepsProcessorFromThoseThatCompute(t *testing.T) {
	for _, ranks := range []int{1, 8} {
		for _, spin := range []time.Duration{0, -1} {
			c := newCluster(t, 2, Config{Manual: true, SpinLimit: spin}, fakeOpts{})
			c.e[0].Share(ranks, 2)
			for range 2 {
				late := c.e[0].wait.neighbours.late()
				require.Equal(t, 1, parkOnce(t, c, late))
				var b strings.Builder
				require.NoError(t, c.e[0].Dump(&b))
				require.Contains(t, b.String(), fmt.Sprintf("%d on 2, and others keep them for long\n", ranks))
				for i := range loadWaits {
					require.Zero(t, parkOnce(t, c, late), "wait %d", i)
				}
			}
		}
	}
}
