//go:build linux

package soft_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// TestSleepsInACopy: while the source is in the middle of a copy a reader that waits sleeps, but
// for a look now and then, which has it go on by itself. So does one whose queue pair has failed.
func TestSleepsInACopy(t *testing.T) { eachReader(t, sleepsInACopy) }

func sleepsInACopy(t *testing.T, r *shareRig) {
	var late atomic.Bool
	defer time.AfterFunc(testlevel.Patience(10*time.Second), func() { late.Store(true); r.channel.Wake() }).Stop()
	sleep := func() {
		require.NoError(t, r.rcq.Arm(false))
		r.pollReader()
		require.NoError(t, r.channel.Wait())
		require.False(t, late.Load(), "nothing has woken it")
	}
	for _, fails := range []bool{false, true} {
		release := soft.HoldCopy(r.sq)
		r.read(1 << 20)
		for range 100 {
			r.pollReader()
		}
		if fails {
			require.NoError(t, r.rq.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
		}
		start := time.Now()
		for range 10 {
			sleep()
		}
		require.Greater(t, time.Since(start), 5*soft.LateWake)
		require.Less(t, r.ended, r.posted)
		release()
		r.until("the READ ends", func() bool { sleep(); return r.ended == r.posted })
	}
	require.Equal(t, verbs.WCWRFlushErr, r.lastStatus)
}

// TestRestsInACopy: neither does the goroutine of the asynchronous mode poll meanwhile.
func TestRestsInACopy(t *testing.T) {
	eachReader(t, func(t *testing.T, r *shareRig) {
		require.NoError(t, r.reader.Async(&r.owner))
		release := soft.HoldCopy(r.sq)
		r.owner.Lock()
		r.read(1 << 20)
		for range 100 {
			r.pollReader()
		}
		r.reader.PollingEnded()
		r.owner.Unlock()
		require.False(t, soft.AsyncPass(r.reader))
		release()
		locked := func(do func() bool) func() bool {
			return func() bool { r.owner.Lock(); defer r.owner.Unlock(); return do() }
		}
		r.until("it reads by itself", locked(func() bool { shares, _ := soft.Waiting(r.rq); return shares == 0 }))
		r.until("the READ ends", locked(r.settled))
	})
}
