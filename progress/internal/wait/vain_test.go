package wait

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const vainLoop = 10_000 // calls

// yieldsOfVainLoop makes calls that find nothing, and returns how often the processor was yielded,
// which takes so long.
func yieldsOfVainLoop(f *fake, took time.Duration) (yields int) {
	f.Lock.Lock()
	defer f.Unlock()
	f.yield = func() time.Duration {
		yields++
		return took
	}
	for range vainLoop {
		f.Vain()
	}
	return yields
}

// Loops of calls that do not wait yield the processor as waiters do.
func TestVainCallsShareProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, c := range []struct {
		name  string
		ranks int
		took  time.Duration
		want  int
	}{
		{"nobody takes it", 3, 0, sharePolls},
		{"others take turns", 3, yieldTaken, takenPolls},
	} {
		f := newFake(t, Config{Manual: true, SpinLimit: -1})
		f.Share(c.ranks, 2)
		n := yieldsOfVainLoop(f, c.took)
		require.InDelta(t, vainLoop/c.want, n, vainLoop/shareRounds, c.name) // one more at the end of each turn
	}
}

// Alone on its processor a loop yields no more often than a waiter would, who parks then.
func TestVainCallsAlone(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	f := newFake(t, Config{Manual: true})
	f.Share(2, 2)
	start := time.Now()
	n := yieldsOfVainLoop(f, 0)
	require.LessOrEqual(t, n, int(time.Since(start)/spinMax)+1)
}

// To one that keeps the processor a loop yields only where a rank may have no other one. There it
// looks at the clock after each poll, and does not poll on for long.
func TestVainCallsBesideOneThatComputes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for ranks, polls := range map[int]int{2: clockPolls, 3: takenPolls} {
		f := newFake(t, Config{Manual: true})
		f.Share(ranks, 2)
		f.sharing.load, f.sharing.until = loadLong, time.Now().Add(time.Hour)
		require.Equal(t, ranks > 2, yieldsOfVainLoop(f, yieldLate) != 0, "%d ranks", ranks)
		require.Equal(t, polls, f.vain.most, "%d ranks", ranks)
	}
}

// Peers need not wake the progress goroutine of one that polls by calls that do not wait.
func TestVainCallsAreProgress(t *testing.T) {
	for name, call := range map[string]func(f *fake){
		"polled": func(f *fake) { f.locked(f.Vain) },
		"outrun": (*fake).Outrun,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, Config{})
			sleeps := func() (n uint64) {
				for !f.asleep() {
					runtime.Gosched()
				}
				f.locked(func() { _, n = f.Counts() })
				return n
			}
			for range 3 {
				before := sleeps()
				for range vainCalls {
					call(f)
				}
				require.Greater(t, sleeps(), before, "it was woken, and sleeps again")
			}
		})
	}
}

// Nor does the progress goroutine sleep while such calls are made.
func TestVainCallsAttend(t *testing.T) {
	f := newFake(t, Config{Manual: true})
	f.Lock.Lock()
	defer f.Unlock()
	require.False(t, f.attended())
	for range vainCalls {
		f.Vain()
	}
	require.True(t, f.attended())
	require.False(t, f.attended(), "a tick later")
}
