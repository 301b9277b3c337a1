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

// TestAsyncLateWakeUp: a wake-up for a program that has polled meanwhile is in vain, once.
func TestAsyncLateWakeUp(t *testing.T) {
	d, a := judged(t)
	for range fewVain + 1 {
		d.PollingEnded()
		require.True(t, d.armed)
		a.polled()
		require.False(t, d.armed)
		for range 2 {
			require.False(t, a.turn())
		}
	}
	d.PollingEnded()
	require.False(t, d.armed, "not heard")
	d.PollingEnded()
	require.True(t, d.armed)
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
		require.True(t, a.judge.open)
		a.polled()
		require.NoError(t, cq.Arm(false))
		d.PollingEnded()
		require.False(t, a.turn())
		a.polled()
		require.True(t, d.armed)
		cq.Disarm()
		require.False(t, a.turn())
		require.Zero(t, a.judge.vain)
	}
	require.NoError(t, cq.Destroy())
}

// TestAsyncEmptyWakeUp: a wake-up that finds nothing, as the program was faster, is in vain too.
func TestAsyncEmptyWakeUp(t *testing.T) {
	d, a := judged(t)
	d.PollingEnded()
	require.False(t, a.turn())
	a.polled()
	require.Equal(t, 1, a.judge.vain)
}
