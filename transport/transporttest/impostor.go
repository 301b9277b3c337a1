package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// impostor is a rank that has a bare queue pair and can send any bytes.
type impostor struct {
	t    *testing.T
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	twin verbs.QP // where the victim has two queue pairs for each rank (TMO 1.3)
	mr   verbs.MR
	buf  []byte // messages, one after the other: the device owns each until it was sent
	used int
	self format.Address
}

// newImpostor takes the place of a rank. like is the address of an honest one.
func newImpostor(t *testing.T, dev verbs.Device, rank int, like []byte) *impostor {
	t.Helper()
	a, err := format.DecodeAddress(like)
	require.NoError(t, err)
	p := &impostor{t: t, dev: dev, buf: make([]byte, 128<<10), self: *a}
	p.pd, err = dev.AllocPD()
	require.NoError(t, err)
	p.cq, err = dev.CreateCQ(verbs.CQInitAttr{CQE: 256})
	require.NoError(t, err)
	p.mr, err = p.pd.RegMR(p.buf, verbs.AccessLocalWrite)
	require.NoError(t, err)
	p.qp = p.open()
	qps := []verbs.QP{p.qp}
	if len(p.self.QPNs) == 2 {
		p.twin = p.open()
		qps = append(qps, p.twin)
	}
	p.self.Rank, p.self.Device = rank, dev.Address()
	for set, qp := range qps {
		for i := range p.self.QPNs[set] {
			p.self.QPNs[set][i] = qp.Num()
		}
	}
	return p
}

func (p *impostor) open() verbs.QP {
	p.t.Helper()
	qp, err := p.pd.CreateQP(&verbs.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}})
	require.NoError(p.t, err)
	require.NoError(p.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: verbs.AccessRemoteRead}, verbs.QPMaskInit))
	return qp
}

// connect connects the impostor and its victim.
func (p *impostor) connect(victim *rank) {
	p.t.Helper()
	require.NoError(p.t, victim.Connect(p.self.Rank, p.self.Encode()))
	a, err := format.DecodeAddress(victim.Address())
	require.NoError(p.t, err)
	p.raise(p.qp, a, len(a.QPNs)-1)
	if p.twin != nil {
		p.raise(p.twin, a, 0)
	}
}

func (p *impostor) raise(qp verbs.QP, a *format.Address, theirs int) {
	p.t.Helper()
	dest := a.QPNs[theirs][p.self.Rank]
	require.NoError(p.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: a.Device}, DestQPN: dest,
		RQPSN: dest & (1<<24 - 1), PathMTU: verbs.MTU4096, MaxDestRdAtomic: 1}, verbs.QPMaskRTR))
	require.NoError(p.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, SQPSN: qp.Num() & (1<<24 - 1), MaxRdAtomic: 1,
		RetryCnt: 7, RNRRetry: 7}, verbs.QPMaskRTS))
}

// say sends a message unchanged.
func (p *impostor) say(msg []byte) {
	p.post(verbs.SendWR{Opcode: verbs.WRSend}, msg)
}

func (p *impostor) post(wr verbs.SendWR, msg []byte) {
	p.t.Helper()
	b := p.buf[p.used:][:len(msg)]
	p.used += copy(b, msg)
	wr.SGList = []verbs.SGE{{Data: b, LKey: p.mr.LKey()}}
	wr.Flags = verbs.SendSignaled
	_, err := p.qp.PostSend(&wr)
	require.NoError(p.t, err)
}

func (p *impostor) poll() {
	_, _ = p.cq.Drain(p, 16)
}

// Complete implements verbs.Handler: whatever became of its messages is nothing to an impostor.
func (p *impostor) Complete(*verbs.WC) bool { return false }

func (p *impostor) close() {
	require.NoError(p.t, p.qp.Destroy())
	if p.twin != nil {
		require.NoError(p.t, p.twin.Destroy())
	}
	require.NoError(p.t, p.cq.Destroy())
	require.NoError(p.t, p.mr.Dereg())
	require.NoError(p.t, p.pd.Dealloc())
}
