package transporttest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// impostor is a rank that has a bare device, and can tell and send any bytes.
type impostor struct {
	t      *testing.T
	dev    verbs.Device
	rank   int
	victim *rank
	like   format.Address // of the victim
	pd     verbs.PD
	cq     verbs.CQ
	qps    []verbs.QP // as many as the victim has for each rank (TMO 1.3); messages go by the first
	mr     verbs.MR
	buf    []byte // messages, one after the other: the device owns each until it was sent
	used   int
	told   []any         // messages of the victim that hear has not been asked for
	ended  error         // why the line to the victim has ended
	hello  *format.Hello // that it tells
	theirs *format.Hello // of the victim

	refused bool // the victim's device has refused a request
}

// newImpostor takes the place of a rank.
func newImpostor(t *testing.T, dev verbs.Device, rank int, victim *rank) *impostor {
	t.Helper()
	a, err := format.DecodeAddress(victim.Address())
	require.NoError(t, err)
	p := &impostor{t: t, dev: dev, rank: rank, victim: victim, like: a, buf: make([]byte, 128<<10)}
	p.pd, err = dev.AllocPD()
	require.NoError(t, err)
	p.cq, err = dev.CreateCQ(verbs.CQInitAttr{CQE: 256})
	require.NoError(t, err)
	p.mr, err = p.pd.RegMR(p.buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	return p
}

// infiltrate opens three ranks, of which rank 1 is an impostor that the victim, rank 0, does not
// know yet.
func infiltrate(t *testing.T, h Harness, opts Options) (c *cluster, victim, other *rank, p *impostor) {
	t.Helper()
	c = h.devices(t, 3, opts)
	victim, other = c.openRank(0, nil), c.openRank(2, nil)
	c.connect(c.ranks)
	return c, victim, other, newImpostor(t, c.job.Devices[1], 1, victim)
}

// introduce gives the victim the address of its rank.
func (p *impostor) introduce() {
	p.t.Helper()
	a := p.like
	a.Rank, a.Device = p.rank, p.dev.Address()
	require.NoError(p.t, p.victim.Connect(p.rank, a.Encode()))
}

// meet has the victim say HELLO, and makes the queue pairs for it and what the impostor would
// answer.
func (p *impostor) meet() {
	p.t.Helper()
	require.NoError(p.t, p.victim.Grant(p.rank, 0))
	p.theirs = hear[*format.Hello](p)
	p.hello = &format.Hello{Rank: p.rank, Number: 99, MTU: p.dev.Attr().MaxMTU, Target: 1, Initiator: 1, CellAddr: p.mr.Addr(), CellRKey: p.mr.RKey()}
	p.used = 8 // the credit cell
	for range p.theirs.Pairs {
		qp, err := p.pd.CreateQP(&verbs.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}})
		require.NoError(p.t, err)
		access := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
		require.NoError(p.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: access}, verbs.QPMaskInit))
		p.qps = append(p.qps, qp)
		p.hello.Pairs = append(p.hello.Pairs, format.Pair{Num: qp.Num(), PSN: 5})
	}
}

// connect connects the impostor and its victim.
func (p *impostor) connect() {
	p.t.Helper()
	p.connectAs(func(*format.Hello) {})
}

// connectAs is connect with a HELLO that lies.
func (p *impostor) connectAs(lie func(h *format.Hello)) {
	p.t.Helper()
	p.meet()
	lie(p.hello)
	p.tell(p.hello)
	for i, qp := range p.qps {
		to := p.theirs.Pairs[len(p.qps)-1-i]
		require.NoError(p.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: p.like.Device}, DestQPN: to.Num,
			RQPSN: to.PSN, PathMTU: p.hello.MTU, MaxDestRdAtomic: 1}, verbs.QPMaskRTR))
		require.NoError(p.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, SQPSN: p.hello.Pairs[i].PSN, MaxRdAtomic: 1,
			RetryCnt: 6, RNRRetry: 7}, verbs.QPMaskRTS))
	}
	p.tell(p.ready())
	hear[*format.Ready](p)
	p.until("the victim to be connected", func() bool { return p.victim.met[p.rank] != nil && p.victim.Drained() })
}

func (p *impostor) ready() *format.Ready { return &format.Ready{Number: p.theirs.Number} }

// tell tells the victim something.
func (p *impostor) tell(m interface{ Encode() []byte }) {
	p.t.Helper()
	p.tellBytes(m.Encode())
}

func (p *impostor) tellBytes(b []byte) {
	p.t.Helper()
	var err error
	p.until("room to tell", func() bool {
		err = p.dev.Tell(p.like.Device, b)
		return !errors.Is(err, syscall.ENOBUFS)
	})
	require.NoError(p.t, err)
}

// hear returns the oldest message of a kind that the victim tells.
func hear[M any](p *impostor) (m M) {
	p.t.Helper()
	p.until("a message", func() bool {
		for i := range p.told {
			if got, ok := p.told[i].(M); ok {
				m, p.told = got, append(p.told[:i:i], p.told[i+1:]...)
				return true
			}
		}
		return false
	})
	return m
}

// until polls both until cond holds.
func (p *impostor) until(what string, cond func() bool) {
	p.t.Helper()
	untilWith(p.t, what, cond, func() {
		p.poll()
		p.victim.poll(p.t)
	})
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
	_, err := p.qps[0].PostSend(&wr)
	require.NoError(p.t, err)
}

func (p *impostor) poll() {
	_, _ = p.cq.Drain(p, 16)
	for t, ok := p.dev.PollTold(); ok; t, ok = p.dev.PollTold() {
		if t.Msg == nil {
			p.ended = t.Err
			continue
		}
		m, err := format.DecodeTold(t.Msg)
		require.NoError(p.t, err)
		p.told = append(p.told, m)
	}
}

// Complete implements verbs.Handler. Where the refusal is lost, there is no other answer.
func (p *impostor) Complete(wc *verbs.WC) bool {
	switch wc.Status {
	case verbs.WCRemInvReqErr, verbs.WCRemAccessErr, verbs.WCRemOpErr, verbs.WCRetryExcErr:
		p.refused = true
	}
	return false
}

func (p *impostor) close() {
	for _, qp := range p.qps {
		require.NoError(p.t, qp.Destroy())
	}
	require.NoError(p.t, p.cq.Destroy())
	require.NoError(p.t, p.mr.Dereg())
	require.NoError(p.t, p.pd.Dealloc())
}
