//go:build linux

package soft_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// TestStraysOfBothEnds fills both rings of a link with packets for queue pairs that both ends then
// destroy: answers to them need room in a ring that nobody would empty. Others still get through.
func TestStraysOfBothEnds(t *testing.T) {
	devs := shmOpener(soft.Config{RingBytes: 4096})(t, 2)
	var cqs [2]verbs.CQ
	var pds [2]verbs.PD
	for i, d := range devs {
		pds[i], cqs[i] = must(d.AllocPD()), must(d.CreateCQ(verbs.CQInitAttr{CQE: 4096}))
	}
	pair := func() (qps [2]verbs.QP) {
		for i := range qps {
			qps[i] = must(pds[i].CreateQP(&verbs.QPInitAttr{SendCQ: cqs[i], RecvCQ: cqs[i], Type: verbs.QPTRC,
				Cap: verbs.QPCap{MaxSendWR: 512, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}))
		}
		for i := range qps {
			soft.RaiseQP(t, qps[i], devs[1-i], qps[1-i].Num(), 7)
		}
		return qps
	}
	first, second := pair(), pair()
	_ = must(second[1].PostRecv(&verbs.RecvWR{WRID: 77}))
	for i := range 200 { // a ring takes 64
		for _, q := range first {
			_ = must(q.PostSend(&verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRSend}))
		}
	}
	for _, q := range first {
		require.NoError(t, q.Destroy())
	}
	_ = must(second[0].PostSend(&verbs.SendWR{WRID: 5, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}))
	lingering := func() int { return devs[0].(*soft.Device).Lingering() + devs[1].(*soft.Device).Lingering() }
	require.NotZero(t, lingering())
	wiretest.Within(t, "the message of the second pair, and the answers", func() {
		wcs := make([]verbs.WC, 16)
		for n := 0; n < 2 || lingering() != 0; runtime.Gosched() {
			for _, cq := range cqs {
				got := must(cq.PollCQ(wcs))
				for _, wc := range wcs[:got] {
					require.Equal(t, verbs.WCSuccess, wc.Status)
				}
				n += got
			}
		}
	})
	for i := range devs {
		require.NoError(t, second[i].Destroy())
		require.NoError(t, cqs[i].Destroy())
		require.NoError(t, pds[i].Dealloc())
		require.NoError(t, devs[i].Close())
	}
}
