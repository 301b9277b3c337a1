//go:build linux

package soft_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
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
				got := must(verbstest.Poll(cq, wcs))
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

// TestReachedByUnreachable: a device that could not connect to a peer has failed its queue pair.
// The peer, which dials it later, learns of that, and why.
func TestReachedByUnreachable(t *testing.T) {
	for name, cfg := range map[string]soft.Config{
		"shm": {Wires: []string{soft.WireSHM}}, "tcp": {Wires: []string{soft.WireTCP}},
		"tls": softtest.WithTLS(soft.Config{Wires: []string{soft.WireTCP}}),
	} {
		t.Run(name, func(t *testing.T) {
			var devs [2]verbs.Device
			var cqs [2]verbs.CQ
			var pds [2]verbs.PD
			var qps [2]verbs.QP
			for i := range devs {
				cfg.Rank, cfg.Secret = i, []byte("secret")
				d, err := soft.Open(cfg)
				require.NoError(t, err)
				devs[i], pds[i] = d, must(d.AllocPD())
				cqs[i] = must(d.CreateCQ(verbs.CQInitAttr{CQE: 64}))
				qps[i] = must(pds[i].CreateQP(&verbs.QPInitAttr{SendCQ: cqs[i], RecvCQ: cqs[i], Type: verbs.QPTRC,
					Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}))
			}
			end := func(i int, why error) error {
				_ = must(qps[i].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}))
				wcs := make([]verbs.WC, 1)
				var ev verbs.AsyncEvent
				wiretest.Within(t, "the end of the queue pair", func() {
					for ok := false; !ok; ev, ok = devs[i].PollAsync() {
						for j := range cqs {
							if must(verbstest.Poll(cqs[j], wcs)) > 0 {
								require.Equal(t, verbs.WCRetryExcErr, wcs[0].Status)
							}
						}
						runtime.Gosched()
					}
				})
				require.Equal(t, verbs.EventQPFatal, ev.Type)
				require.ErrorIs(t, ev.Err, why)
				return ev.Err
			}
			soft.RaiseQP(t, qps[0], nowhere{devs[1]}, qps[1].Num(), 7)
			_ = end(0, verbs.ErrUnreachable)
			soft.RaiseQP(t, qps[1], devs[0], qps[0].Num(), 7)
			if name == "shm" {
				_ = end(1, verbs.ErrPeerFailed)
			} else { // which has the peer's words for it
				require.ErrorContains(t, end(1, verbs.ErrUnreachable), "rank 0 has given up rank 1")
			}
			for i := range devs {
				require.NoError(t, qps[i].Destroy())
				require.NoError(t, cqs[i].Destroy())
				require.NoError(t, pds[i].Dealloc())
				require.NoError(t, devs[i].Close())
			}
		})
	}
}

// nowhere is a device at an address where nobody listens.
type nowhere struct{ verbs.Device }

func (n nowhere) Address() []byte {
	a, err := wire.DecodeAddress(n.Device.Address())
	if err != nil {
		panic(err)
	}
	if a.SHM != "" {
		a.SHM += "-nobody"
	}
	for i := range a.TCP {
		a.TCP[i] = "127.0.0.1:1"
	}
	return a.Encode()
}

// TestReachedInError: a queue pair that has failed before it was connected answers its peer, whose
// device is connected already.
func TestReachedInError(t *testing.T) {
	devs := shmOpener(soft.Config{})(t, 2)
	var cqs [2]verbs.CQ
	var pds [2]verbs.PD
	var first, second [2]verbs.QP
	create := func(i int) verbs.QP {
		return must(pds[i].CreateQP(&verbs.QPInitAttr{SendCQ: cqs[i], RecvCQ: cqs[i], Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	}
	for i, d := range devs {
		pds[i], cqs[i] = must(d.AllocPD()), must(d.CreateCQ(verbs.CQInitAttr{CQE: 64}))
		first[i], second[i] = create(i), create(i)
	}
	for i := range first {
		soft.RaiseQP(t, first[i], devs[1-i], first[1-i].Num(), 7)
	}
	ended := func(q verbs.QP) (status verbs.WCStatus) {
		_ = must(q.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}))
		wiretest.Within(t, "the end of a send", func() {
			wcs := make([]verbs.WC, 1)
			for must(verbstest.Poll(cqs[1], wcs)) == 0 {
				_ = must(verbstest.Poll(cqs[0], make([]verbs.WC, 1)))
				runtime.Gosched()
			}
			status = wcs[0].Status
		})
		return status
	}
	_ = must(first[0].PostRecv(&verbs.RecvWR{}))
	require.Equal(t, verbs.WCSuccess, ended(first[1]))
	require.NoError(t, second[0].Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	soft.RaiseQP(t, second[1], devs[0], second[0].Num(), 7)
	require.NotEqual(t, verbs.WCSuccess, ended(second[1]))
	for i := range devs {
		require.NoError(t, first[i].Destroy())
		require.NoError(t, second[i].Destroy())
		require.NoError(t, cqs[i].Destroy())
		require.NoError(t, pds[i].Dealloc())
		require.NoError(t, devs[i].Close())
	}
}
