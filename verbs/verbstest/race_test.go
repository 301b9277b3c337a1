package verbstest

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// The scenarios of TMO 7.2 that a device alone can show, by number. On the loop wire here, one
// packet of 1 KiB moves on each link at each poll of its receiver, and time advances with the
// polls: every run is the same.

// raceRig is a tagRig with another source, whose devices all advance only by move. Each source has
// its own link.
type raceRig struct {
	*tagRig
	fabric *soft.Fabric
	devs   []*soft.Device
	c      *node
	qc, qd verbs.QP // the other source's, and the receiver's for it
	spin   verbs.CQ // the receiver's, always empty: move polls it
}

func newRaceRig(t *testing.T, tm softtest.TM) *raceRig {
	t.Helper()
	return newRaceRigOf(t, tm, 15, 64)
}

func newRaceRigOf(t *testing.T, tm softtest.TM, tags, ops uint32) *raceRig {
	t.Helper()
	return newRaceRigOn(t, raceFabric, tm, tags, ops)
}

var raceFabric = softtest.FabricOptions{Seed: 1, MaxBurst: 1, MaxPayload: 1024, Step: 10 * time.Microsecond}

func newRaceRigOn(t *testing.T, fo softtest.FabricOptions, tm softtest.TM, tags, ops uint32) *raceRig {
	t.Helper()
	r := &raceRig{fabric: softtest.NewFabric(fo)}
	e := newEnv(t, func(t *testing.T, n int) []verbs.Device { return r.open(t, n, tm) }, 3)
	opts := TagOptions{InitialCount: uint32(tm.InitialCount), Strict: tm.Strict, RecvUnexpected: tm.RecvUnexpected}
	r.tagRig = &tagRig{env: e, a: e.nodes[0], b: e.nodes[1], opts: opts, count: opts.InitialCount}
	r.c, r.spin = e.nodes[2], r.b.cq
	r.b.cq, r.srq = r.b.tagSRQ(tags, ops)
	r.qa, r.qb = e.connect(r.a, r.b, r.source(), r.conf())
	r.qc, r.qd = e.connect(r.c, r.b, r.source(), r.conf())
	r.memory(1<<20, untaggedSize)
	return r
}

// source is the configuration of a QP for many unsignalled requests.
func (r *raceRig) source() qpConf {
	return qpConf{cap: verbs.QPCap{MaxSendWR: 4096, MaxRecvWR: 64, MaxSendSGE: 3, MaxRecvSGE: 1, MaxInlineData: 256}}
}

func (r *raceRig) open(t *testing.T, n int, tm softtest.TM) (out []verbs.Device) {
	for i := range n {
		d, err := soft.Open(softtest.WithTM(soft.Config{Fabric: r.fabric, Rank: i}, tm))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		r.devs = append(r.devs, d)
		out = append(out, d)
	}
	return out
}

// move polls every device n times; the receiver's completions stay in its queue.
func (r *raceRig) move(n int) {
	r.t.Helper()
	for range n {
		r.a.pollCQ(r.a.cq)
		r.b.pollCQ(r.spin)
		r.c.pollCQ(r.c.cq)
	}
}

// short sends a tagged message of one packet from any source and returns it with its header.
func (r *raceRig) short(from *node, qp verbs.QP, tag uint64, ctx uint32, n int) []byte {
	r.t.Helper()
	m := make([]byte, verbs.TMHSize+n)
	copy(m[verbs.TMHSize:], pattern(n, int(ctx)))
	verbs.TMH{Opcode: verbs.TMHEager, Tag: tag, AppCtx: ctx}.Put(m)
	from.send(qp, inline(77, 0, m))
	return m
}

// class sends a message without a tag to match: NO_TAG or FIN.
func (r *raceRig) class(from *node, qp verbs.QP, op verbs.TMHOpcode, n int) {
	r.t.Helper()
	m := make([]byte, max(n, verbs.TMHSize))
	verbs.TMH{Opcode: op}.Put(m)
	from.send(qp, inline(77, 0, m[:n]))
}

const bothFlags = verbs.WCFlagTMMatch | verbs.WCFlagTMDataValid

// whole takes the single completion of an expected message of one packet.
func (r *raceRig) whole(id, tag uint64, ctx uint32, msg, buf []byte) {
	r.t.Helper()
	w := r.b.want(id, verbs.WCSuccess)
	require.Equal(r.t, verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: bothFlags, ByteLen: uint32(len(msg) - verbs.TMHSize), Tag: tag,
		Priv: ctx, QPNum: w.QPNum}, w)
	require.True(r.t, bytes.Equal(msg[verbs.TMHSize:], buf[:w.ByteLen]))
}

// hit sends a short message from the first source, which must match receive id.
func (r *raceRig) hit(id, tag uint64, buf []byte) {
	r.t.Helper()
	m := r.short(r.a, r.qa, tag, uint32(id), 8)
	r.whole(id, tag, uint32(id), m, buf)
}

// miss sends a short message from the first source, which must be unexpected, in untagged buffer k,
// and is then handled.
func (r *raceRig) miss(k int, tag uint64) {
	r.t.Helper()
	r.unexpected(k, r.short(r.a, r.qa, tag, 0, 8))
	r.count++
}

// operation is a signalled list operation with the current count.
func (r *raceRig) operation(op verbs.OpsOpcode, wrid uint64) *verbs.OpsWR {
	return &verbs.OpsWR{Opcode: op, WRID: wrid, Flags: verbs.OpsSignaled | verbs.OpsTMSync, UnexpectedCnt: r.count}
}

func (r *raceRig) toErr(qp verbs.QP) {
	r.t.Helper()
	r.ok(qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
}

// fits checks that exactly n more receives fit into the list, and removes them again.
func (r *raceRig) fits(n int) {
	r.t.Helper()
	hs := map[uint32]bool{}
	for i := range uint64(n) {
		hs[r.add(900+i, 1<<50+i, exact, r.bbuf[:1])] = true
	}
	require.Len(r.t, hs, n, "a handle was given twice")
	_, err := r.srq.PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 1, exact, r.bbuf[:1])})
	require.Error(r.t, err)
	for h := range hs {
		r.del(h, verbs.WCSuccess)
	}
}
