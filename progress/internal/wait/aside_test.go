package wait

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStepAsideTimes: at first often, then less where nobody runs meanwhile, and among more ranks
// than processors never often.
func TestStepAsideTimes(t *testing.T) {
	f := newFake(t, Config{Manual: true})
	f.runnable[0].Name = "" // no goroutine counts as runnable
	var took time.Duration
	steps, now := 0, time.Now()
	f.aside.step = func() time.Duration {
		require.True(t, f.TryLock(), "the lock is free meanwhile")
		f.Unlock()
		steps++
		return took
	}
	at := func(late time.Duration, want int) {
		now = now.Add(late)
		f.stepAside(now)
		require.Equal(t, want, steps)
	}
	f.Lock.Lock()
	defer f.Unlock()
	took = 4 * asideLeast
	at(0, 1)
	at(took+took/2-1, 1)
	at(1, 2)
	at(took+took/2-1, 2)
	took = asideTaken
	at(1, 3)
	at(took+asideLeast-1, 3)
	took = asideTaken - 1
	at(1, 4)
	for every := 2 * asideLeast; every < asideMost; every *= 2 {
		at(took+every-1, steps)
		at(1, steps+1)
	}
	at(took+asideMost-1, steps)
	at(1, steps+1)
	f.Share(3, 2)
	at(took+asideMost, steps+1)
	for _, took = range []time.Duration{0, asideTaken} {
		at(asideTaken+asideShared, steps+1)
		at(took+asideShared-1, steps)
		at(1, steps+1)
	}
}

// TestPollerStepsAside: it does with GOMAXPROCS 1 only, when the polls under the first hold of the
// lock are over. They may have copied much, and a goroutine that is due would take the processor in
// the system call of a copy.
func TestPollerStepsAside(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for procs := 1; procs <= 2; procs++ {
		runtime.GOMAXPROCS(procs)
		f := newFake(t, Config{Manual: true})
		f.runnable[0].Name = "" // no goroutine counts as runnable
		f.yield = func() time.Duration { return 0 }
		var o op
		const stream = 10_000
		f.stream = stream
		steps := 0
		f.aside.step = func() time.Duration {
			steps++
			require.Equal(t, f.hold, stream-f.stream)
			f.arrive(&o)
			return 0
		}
		f.onWait = func() { f.arrive(&o) }
		require.NoError(t, f.await(bg, &o))
		require.Equal(t, 2-procs, steps)
	}
}

// TestWhoParksDoesNotStepAside: a waiter that is about to park lets the scheduler look for sockets
// by that.
func TestWhoParksDoesNotStepAside(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := newFake(t, Config{Manual: true})
	f.runnable[0].Name = "" // no goroutine counts as runnable
	f.sharing.load, f.sharing.until = loadLong, time.Now().Add(time.Hour)
	f.aside.step = func() time.Duration {
		t.Error("it has stepped aside")
		return 0
	}
	var o op
	f.onWait = func() { f.arrive(&o) }
	require.NoError(t, f.await(bg, &o))
}

// TestNobodyStepsAsideFromTheRunnable: a goroutine that is runnable would keep the processor from
// one that has stepped aside.
func TestNobodyStepsAsideFromTheRunnable(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := newFake(t, Config{Manual: true})
	ran := make(chan struct{})
	steps := 0
	f.aside.step = func() time.Duration {
		select {
		case <-ran: // this goroutine was preempted before it looked
		default:
			steps++
		}
		return 0
	}
	f.Lock.Lock()
	go close(ran)
	f.stepAside(time.Now())
	require.Zero(t, steps)
	<-ran
	f.Unlock()
}
