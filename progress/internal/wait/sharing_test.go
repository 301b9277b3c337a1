package wait

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPolicy(t *testing.T) {
	alone := policy{hold: holdPolls, polls: clockPolls, budget: spinMax, yields: true, keep: spinMax + spinYield, every: spinYield}
	perhaps := policy{hold: clockPolls, polls: clockPolls, rounds: shareRounds, yields: true}
	oversubscribed := policy{hold: sharePolls, polls: sharePolls, rounds: shareRounds, yields: true}
	turns := policy{hold: takenPolls, polls: takenPolls, rounds: shareRounds, yields: true}
	with := func(m policy, change func(m *policy)) policy { change(&m); return m }
	busy := func(m *policy) { m.rounds, m.budget, m.keep, m.every = 0, spinBusy, spinBusy+spinYield, spinYield }
	parks := policy{hold: takenPolls, polls: takenPolls, budget: spinKept}
	const limit, long = 20 * time.Microsecond, time.Millisecond
	watch := func(m *policy) { m.budget += long }
	limited := func(m *policy) { m.rounds, m.budget = 0, limit }
	for _, c := range []struct {
		name     string
		n        sharing
		limit    time.Duration
		runnable bool
		transfer time.Duration
		want     policy
	}{
		{"nothing is known", sharing{procs: 2}, 0, false, 0, alone},
		{"a processor for each", sharing{ranks: 2, processors: 2, procs: 2}, 0, false, 0, alone},
		{"one rank of many hosts", sharing{ranks: 1, processors: 64, procs: 64}, 0, false, 0, alone},
		{"other goroutines", sharing{ranks: 2, processors: 2, procs: 2}, 0, true, 0, with(alone, busy)},
		{"one P", sharing{ranks: 2, processors: 2, procs: 1}, 0, false, 0, perhaps},
		{"one P, other goroutines", sharing{ranks: 2, processors: 2, procs: 1}, 0, true, 0, with(perhaps, busy)},
		{"others take turns", sharing{ranks: 2, processors: 2, procs: 2, load: loadBrief}, 0, false, 0, perhaps},
		{"others keep it", sharing{ranks: 2, processors: 2, procs: 2, load: loadLong}, 0, false, 0, parks},
		{"one rank too many", sharing{ranks: 3, processors: 2, procs: 2}, 0, false, 0, oversubscribed},
		{"many", sharing{ranks: 8, processors: 2, procs: 2}, 0, false, 0, oversubscribed},
		{"many with one P", sharing{ranks: 8, processors: 2, procs: 1}, 0, false, 0, oversubscribed},
		{"pinned to one processor", sharing{ranks: 2, processors: 1, procs: 2}, 0, false, 0, oversubscribed},
		{"many, taking turns", sharing{ranks: 8, processors: 2, procs: 2, load: loadBrief}, 0, false, 0, turns},
		{"many, other goroutines", sharing{ranks: 8, processors: 2, procs: 2}, 0, true, 0, with(oversubscribed, busy)},
		{"many, and one computes", sharing{ranks: 8, processors: 2, procs: 2, load: loadLong}, 0, false, 0, parks},
		{"one P, and one computes", sharing{ranks: 2, processors: 2, procs: 1, load: loadLong}, 0, false, 0, parks},
		{"a limit", sharing{ranks: 2, processors: 2, procs: 2}, limit, false, 0,
			with(alone, func(m *policy) { limited(m); m.keep = limit + spinYield })},
		{"a limit, and one computes", sharing{ranks: 2, processors: 2, procs: 2, load: loadLong}, limit, false, long,
			policy{hold: holdPolls, polls: clockPolls, budget: limit}},
		{"a limit for many", sharing{ranks: 8, processors: 2, procs: 2}, limit, false, 0, with(oversubscribed, limited)},
		{"a large message", sharing{ranks: 2, processors: 2, procs: 2}, 0, false, long, with(alone, watch)},
		{"a large message where others take turns", sharing{ranks: 2, processors: 2, procs: 2, load: loadBrief}, 0, false, long,
			with(alone, watch)},
		{"a large message among many", sharing{ranks: 8, processors: 2, procs: 2}, 0, false, long, with(oversubscribed, watch)},
		{"a large message among many, and one computes", sharing{ranks: 8, processors: 2, procs: 2, load: loadLong}, 0, false, long,
			parks},
	} {
		require.Equal(t, c.want, c.n.policy(c.limit, c.runnable, c.transfer), c.name)
	}
	// Who parks at once polls as often whatever the load: a simulation counts polls.
	for _, ranks := range []int{1, 8} {
		for _, l := range []load{loadNone, loadBrief, loadLong} {
			n := sharing{ranks: ranks, processors: 2, procs: 2, load: l}
			require.Equal(t, clockPolls, n.policy(-1, false, 0).hold)
		}
	}
}

func TestLoadIsBelievedForAWhile(t *testing.T) {
	now := time.Now()
	waits := func(n *sharing) (waits int) {
		for was := n.load; n.load == was; waits++ {
			n.waited(now)
		}
		require.Equal(t, loadNone, n.load)
		return waits - 1
	}
	var n sharing
	n.yielded(yieldTaken-1, now)
	require.Equal(t, loadNone, n.load)
	n.yielded(yieldTaken, now)
	require.Equal(t, loadBrief, n.load)
	require.Equal(t, loadWaits, waits(&n))

	n.yielded(yieldTaken, now)
	n.waited(now)
	n.yielded(yieldLate-1, now)
	require.Equal(t, loadBrief, n.load)
	require.Equal(t, loadWaits, waits(&n), "seen again, believed as long again")

	n.yielded(yieldTaken, now)
	n.yielded(yieldLate, now)
	n.yielded(yieldTaken, now)
	require.Equal(t, loadLong, n.load, "one that keeps the processor outweighs")
	for range 2 * loadWaits {
		n.waited(now)
	}
	n.waited(now.Add(loadTimes*yieldLate - 1))
	require.Equal(t, loadLong, n.load, "as long as a trial costs little, however many waits")
	n.waited(now.Add(loadTimes * yieldLate))
	require.Equal(t, loadNone, n.load)

	n.yielded(time.Hour, now)
	n.waited(now.Add(loadMost))
	require.Equal(t, loadNone, n.load, "the process was stopped")
}

// Among eight ranks on two processors three others poll before a yield returns.
func TestLateInACrowd(t *testing.T) {
	for _, c := range []struct{ ranks, processors, times int }{
		{0, 0, 1}, {2, 2, 1}, {2, 4, 1}, {3, 2, 1}, {8, 2, 4}, {8, 0, 8},
	} {
		n := sharing{ranks: c.ranks, processors: c.processors}
		n.yielded(yieldLate*time.Duration(c.times)-1, time.Now())
		require.Equal(t, loadBrief, n.load, "%+v", c)
		n.yielded(yieldLate*time.Duration(c.times), time.Now())
		require.Equal(t, loadLong, n.load, "%+v", c)
	}
}

// parkOnce has a goroutine wait until it sleeps, and returns how often it has yielded its processor
// meanwhile; took is how long yields take.
func parkOnce(t *testing.T, f *fake, took time.Duration) (yields int) {
	var o op
	n := 0
	f.yield = func() time.Duration {
		n++
		return took
	}
	f.onWait = func() {
		yields = n
		f.arrive(&o)
	}
	require.NoError(t, f.await(bg, &o))
	return yields
}

func dump(f *fake) string {
	var b strings.Builder
	f.Dump(&b)
	return b.String()
}

// Among more ranks than processors a waiter yields its processor each round; where there are
// enough, once, before it parks.
func TestWaiterSharesProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for ranks, most := range map[int]int{1: 1, 3: shareRounds + 1} {
		t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) {
			f := newFake(t, Config{Manual: true})
			f.Share(ranks, 2)
			seen := 0
			for i := 0; i < 1000 && seen < most; i++ { // other goroutines of the test may want to run at times, which cuts a wait short
				n := parkOnce(t, f, 0)
				require.LessOrEqual(t, n, most)
				seen = max(seen, n)
			}
			require.Equal(t, most, seen)
			require.Equal(t, fmt.Sprintf("ranks that share its processors: %d on 2\n", ranks), dump(f))
		})
	}
}

// Where other goroutines want to run a waiter soon parks, also among too many ranks.
func TestWaiterSharesProcessorWithGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := newFake(t, Config{Manual: true})
	f.Share(8, 2)
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !stop.Load() {
			runtime.Gosched()
		}
	}()
	require.Equal(t, 1, parkOnce(t, f, 0), "before it parks")
	stop.Store(true)
	<-ended
}

// Also where the first yield to another rank ends each wait other goroutines get to run.
func TestShortWaitsLetGoroutinesRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := newFake(t, Config{Manual: true})
	f.Share(2, 1)
	var o op
	answered := false
	f.yield = func() time.Duration {
		if !answered {
			answered = true
			f.quietly(&o)
		}
		return yieldTaken
	}
	f.onWait = func() { f.arrive(&o) }
	var ran atomic.Bool
	ended := make(chan struct{})
	go func() {
		ran.Store(true)
		close(ended)
	}()
	for i := 0; i < 50 && !ran.Load(); i++ {
		answered = false
		require.NoError(t, f.await(bg, &o))
	}
	require.True(t, ran.Load(), "within 50 waits")
	<-ended
}

// A wait begins with as many polls as what yields have shown calls for.
func TestFirstPollsFollowTheLoad(t *testing.T) {
	f := newFake(t, Config{Manual: true})
	f.Share(8, 2)
	took := time.Duration(0)
	f.yield = func() time.Duration { return took }
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Equal(t, sharePolls, f.hold)
	f.yieldOnce()
	require.Equal(t, sharePolls, f.hold)
	took = yieldTaken
	f.yieldOnce()
	require.Equal(t, takenPolls, f.hold)
	for range loadWaits {
		f.waited()
		require.Equal(t, takenPolls, f.hold)
	}
	f.waited()
	require.Equal(t, sharePolls, f.hold)
}

// To one that keeps the processor it is yielded once, and then not for as long as that is believed.
func TestWaiterKeepsProcessorFromThoseThatCompute(t *testing.T) {
	for _, ranks := range []int{1, 8} {
		for _, spin := range []time.Duration{0, -1} {
			f := newFake(t, Config{Manual: true, SpinLimit: spin})
			f.Share(ranks, 2)
			for range 2 {
				late, start := f.sharing.late(), time.Now()
				require.Equal(t, 1, parkOnce(t, f, late))
				require.Contains(t, dump(f), fmt.Sprintf("%d on 2, and others keep them for long\n", ranks))
				require.True(t, f.sharing.until.After(start.Add(loadTimes*late)))
				f.sharing.until = start.Add(time.Hour) // this test may take long
				for i := range 2 * loadWaits {
					require.Zero(t, parkOnce(t, f, late), "wait %d", i)
				}
				f.sharing.until = start
			}
		}
	}
}

// Beside one that computes a waiter, which soon parks, lets the progress goroutine sleep on.
func TestWhoParksSoonDisturbsNoSleep(t *testing.T) {
	const waits = 100
	f := newFake(t, Config{})
	f.locked(func() { f.sharing.load, f.sharing.until = loadLong, time.Now().Add(time.Hour) })
	asleep := func() {
		for !f.asleep() {
			runtime.Gosched()
		}
	}
	parks := func() (n uint64) {
		f.locked(func() { n = f.parks })
		return n
	}
	asleep()
	f.locked(func() { f.disarms = 0 })
	var o op
	for range waits {
		asleep()
		before := parks()
		go func() {
			for parks() == before {
				runtime.Gosched()
			}
			asleep()
			f.arrive(&o)
		}()
		require.NoError(t, f.await(bg, &o))
	}
	f.locked(func() { require.LessOrEqual(t, f.disarms, waits, "more than once for each arrival") })
}
