package soft_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// TestAsyncShortQueue: a message of many packets gets through a queue of one to a device that works
// by itself.
func TestAsyncShortQueue(t *testing.T) {
	f := loop.NewFabric(loop.Options{Queue: 1, MaxPayload: 256})
	a, b := must(soft.Open(soft.Config{Fabric: f})), must(soft.Open(soft.Config{Fabric: f}))
	var owner sync.Mutex
	require.NoError(t, b.Async(&owner))
	owner.Lock()
	apd, bpd := must(a.AllocPD()), must(b.AllocPD())
	acq, bcq := must(a.CreateCQ(verbs.CQInitAttr{CQE: 64})), must(b.CreateCQ(verbs.CQInitAttr{CQE: 64}))
	room := verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}
	qa := must(apd.CreateQP(&verbs.QPInitAttr{SendCQ: acq, RecvCQ: acq, Type: verbs.QPTRC, Cap: room}))
	qb := must(bpd.CreateQP(&verbs.QPInitAttr{SendCQ: bcq, RecvCQ: bcq, Type: verbs.QPTRC, Cap: room}))
	soft.RaiseQP(t, qa, b, qb.Num(), 7)
	soft.RaiseQP(t, qb, a, qa.Num(), 7)
	src, dst := make([]byte, 64<<10), make([]byte, 64<<10)
	smr, dmr := must(apd.RegMR(src, 0)), must(bpd.RegMR(dst, verbs.AccessLocalWrite))
	_ = must(qb.PostRecv(&verbs.RecvWR{SGList: []verbs.SGE{{Data: dst, LKey: dmr.LKey()}}}))
	b.PollingEnded()
	owner.Unlock()
	_ = must(qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{{Data: src, LKey: smr.LKey()}}}))
	var wc [4]verbs.WC
	for start := time.Now(); must(verbstest.Poll(acq, wc[:])) == 0; {
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "no acknowledgement")
		if runtime.GOMAXPROCS(0) == 1 {
			time.Sleep(time.Microsecond) // else the device's goroutine would run every 10 ms
		}
	}
	require.Equal(t, verbs.WCSuccess, wc[0].Status)
	owner.Lock()
	for _, end := range []func() error{smr.Dereg, dmr.Dereg, qa.Destroy, qb.Destroy, acq.Destroy, bcq.Destroy, apd.Dealloc, bpd.Dealloc} {
		require.NoError(t, end())
	}
	owner.Unlock()
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}
