package soft

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
)

// judged opens a device in asynchronous mode whose goroutine is the test's, which owns it too.
func judged(t *testing.T) (*Device, *async) {
	d, err := Open(Config{Fabric: NewFabric()})
	require.NoError(t, err)
	owner := new(sync.Mutex)
	owner.Lock()
	a := &async{d: d, owner: owner, parked: notify.NewChan()}
	d.async = a
	t.Cleanup(func() {
		d.async = nil
		require.NoError(t, d.Close())
	})
	return d, a
}

// TestAsyncJudges: wake-ups that bring nothing make calls of PollingEnded unheard, fewer of them
// the rarer those wake-ups are, and one that moves a large message makes all heard again.
func TestAsyncJudges(t *testing.T) {
	d, a := judged(t)
	heard := func() bool {
		d.PollingEnded()
		return d.armed
	}
	unheard := func() (n int) {
		for !heard() {
			n++
			require.Less(t, n, 100)
		}
		return n
	}
	vain := func() { // packets came, but nothing large
		a.woken, a.passes = true, 1
		a.polled()
	}
	late := func() { // the program has polled before the goroutine came to its turn
		a.polled()
		for range 2 {
			require.False(t, a.turn())
		}
	}
	for _, end := range []func(){vain, late} {
		var waits []int
		for range 8 {
			waits = append(waits, unheard())
			end()
			require.False(t, d.armed)
		}
		require.Equal(t, []int{0, 0, 0, 0, 1, 3, 7, 7}, waits)
		unheard()
		a.woken, a.passes = true, 2
		a.polled()
	}
	for range 100 { // the goroutine was not woken
		require.True(t, heard())
		a.polled()
		require.Zero(t, a.vain)
	}
}

// TestAsyncSleeperIsNotJudged: what a program that sleeps in the device is woken for says nothing
// about its calls of PollingEnded, before or meanwhile.
func TestAsyncSleeperIsNotJudged(t *testing.T) {
	d, a := judged(t)
	ch, err := d.CreateCompChannel()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 1, Channel: ch})
	require.NoError(t, err)
	for range 2 * (fewVain + mostVain) {
		d.PollingEnded()
		require.True(t, a.heard)
		a.polled()
		require.NoError(t, cq.Arm(false))
		d.PollingEnded()
		require.False(t, a.turn())
		a.polled()
		require.True(t, d.armed)
		cq.Disarm()
		require.False(t, a.turn())
		require.Zero(t, a.vain)
	}
	require.NoError(t, cq.Destroy())
}

// TestAsyncEmptyWakeUp: a wake-up that finds nothing, as the program was faster, is in vain too.
func TestAsyncEmptyWakeUp(t *testing.T) {
	d, a := judged(t)
	d.PollingEnded()
	require.False(t, a.turn())
	a.polled()
	require.Equal(t, 1, a.vain)
}
