package verbstest

import (
	"bytes"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
)

// TagOptions describe properties of a device that tests cannot query; the zero value is the device
// that TMO 9 recommends.
type TagOptions struct {
	InitialCount uint32 // of unexpected messages, on both sides
	MTU          int    // an eager message that is longer has two completions; 0: the path MTU

	Strict         bool // hosts that break V11, V13, V14 or V19 (TMO 7.1) are exposed
	Dormant        bool // an unexpected message makes earlier entries dormant too (TMO 9)
	RecvUnexpected bool // unexpected messages complete as RECV, not as TM_RECV (TMO 4.2)
	TwoIncomplete  bool // RNDV_INCOMPLETE comes with MATCH, and DATA_VALID after it
	// An RDMA READ is only checked against the region's rights, and not, as by a NIC, the QP's.
	OpenReads       bool
	SyncReqOfDriver bool // SYNC_REQ as the mlx5 driver does (TMO 4.6); else: C and S differ

	Unnamed  bool // a completion with MATCH names no queue pair (TMO 9)
	Silent   bool // the peer of a queue pair that is destroyed or reset is not told
	ByItself bool // the device works while nobody polls it, and may be faster than the test
	NoEvents bool // a queue pair that fails has no event, except by the end of its peer's device

	// A responder refuses once and then is silent (TMO 8.3). What it has refused ends with
	// RETRY_EXC_ERR where that was lost.
	Lossy     bool // the wire loses packets
	DeafReads bool // a READ whose data have begun to come ignores that it is refused

	// Patience is for how long a test waits for what should happen, where the devices are slow.
	// Default 20 s, see testlevel.Patience.
	Patience time.Duration

	LeftOut testlevel.LeftOut // the rules and scenarios that do not hold

	played bool // the polls of the test alone move packets: what happens is the same each time
}

// tagRig is a sender, which is a plain RC peer, and a receiver with a tag-matching SRQ. A trio has
// another sender, on a device of its own.
type tagRig struct {
	*env
	a, b, c *node
	qa, qb  verbs.QP
	qc, qd  verbs.QP // of c, and the receiver's for it
	srq     verbs.SRQ
	tcq     verbs.CQ // of srq
	spare   verbs.CQ // of the receiver, always empty, for unpolled
	amr     verbs.MR
	abuf    []byte
	bmr     verbs.MR
	bbuf    []byte
	umr     verbs.MR
	ubuf    []byte // untagged buffers, room bytes each
	room    int
	posted  int    // untagged buffers
	used    int    // untagged buffers whose completions were taken
	count   uint32 // unexpected messages handled (C of TMO 5.1)
}

const (
	untaggedDepth = 64
	untaggedStock = 4       // posted for messages to come
	untaggedID    = 1 << 40 // of the first untagged buffer
	exact         = ^uint64(0)
)

// newTagRig is a rig for messages of up to 4 MiB, if they are expected.
func newTagRig(t *testing.T, open Opener, opts TagOptions, tags, ops uint32) *tagRig {
	t.Helper()
	r := newRig(t, open, opts, 2, tags, ops)
	r.memory(4<<20, 4096)
	return r
}

// newSmallRig is a rig for short messages, which costs less to set up.
func newSmallRig(t *testing.T, open Opener, opts TagOptions, tags, ops uint32) *tagRig {
	t.Helper()
	r := newRig(t, open, opts, 2, tags, ops)
	r.memory(64<<10, 4096)
	return r
}

// newTrio is a rig with two senders.
func newTrio(t *testing.T, open Opener, opts TagOptions, tags, ops uint32) *tagRig {
	t.Helper()
	r := newRig(t, open, opts, 3, tags, ops)
	r.memory(1<<20, 16<<10)
	return r
}

func newRig(t *testing.T, open Opener, opts TagOptions, devices int, tags, ops uint32) *tagRig {
	t.Helper()
	e := newEnv(t, open, devices)
	e.opts = opts
	r := &tagRig{env: e, a: e.nodes[0], b: e.nodes[1], spare: e.nodes[1].cq, count: opts.InitialCount}
	r.tcq, r.srq = r.b.tagSRQ(tags, ops)
	r.b.cq = r.tcq
	r.qa, r.qb = e.connect(r.a, r.b, qpConf{}, r.conf())
	if devices == 3 {
		r.c = e.nodes[2]
		r.qc, r.qd = e.connect(r.c, r.b, qpConf{}, r.conf())
	}
	return r
}

// memory registers size bytes at both ends, of which the sender's are filled, and untagged buffers
// of room bytes.
func (r *tagRig) memory(size, room int) {
	r.t.Helper()
	r.room = room
	r.amr, r.abuf = r.a.mem(size)
	r.bmr, r.bbuf = r.b.mem(size)
	r.umr, r.ubuf = r.b.mem(room * untaggedDepth)
	copy(r.abuf, pattern(size, 3))
}

// conf configures a QP whose send queue the device uses (TMO 1.3).
func (r *tagRig) conf() qpConf {
	return qpConf{srq: r.srq, cap: verbs.QPCap{MaxRecvSGE: 1}}
}

// matchesTags queries, as programs do (TMO 1.1), whether the device can match tags.
func (n *node) matchesTags() bool { return n.dev.Attr().TM.Flags&verbs.TMCapRC != 0 }

func (n *node) tagCQ(size int) verbs.CQ {
	n.e.t.Helper()
	cq, err := n.dev.CreateCQ(verbs.CQInitAttr{CQE: size, WCFlags: verbs.WCExWithTMInfo})
	n.e.ok(err)
	n.onFree(cq.Destroy)
	return cq
}

func (n *node) tagSRQ(tags, ops uint32) (verbs.CQ, verbs.SRQ) {
	n.e.t.Helper()
	cq := n.tagCQ(4096)
	srq, err := n.pd.CreateSRQ(tagAttr(cq, tags, ops))
	n.e.ok(err)
	n.onFree(srq.Destroy)
	return cq, srq
}

func tagAttr(cq verbs.CQ, tags, ops uint32) *verbs.SRQInitAttr {
	return &verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM,
		CQ: cq, SRQAttr: verbs.SRQAttr{MaxWR: untaggedDepth, MaxSGE: 1}, TM: verbs.TMCap{MaxNumTags: tags, MaxOps: ops}}
}

// untagged posts k untagged buffers; their wr_ids count up.
func (r *tagRig) untagged(k int) {
	r.t.Helper()
	for range k {
		i := r.posted % untaggedDepth
		r.b.srqRecv(r.srq, untaggedID+uint64(r.posted), sge(r.umr, r.ubuf[i*r.room:(i+1)*r.room]))
		r.posted++
	}
}

// stocked posts untagged buffers for messages that need one, and more than are used at once, so
// that a message that takes one too many shows.
func (r *tagRig) stocked() {
	r.t.Helper()
	r.untagged(max(0, r.used+untaggedStock-r.posted))
}

// do posts a signalled list operation with the count, and waits for its completion, which must be
// the next of the CQ.
func (r *tagRig) do(wr verbs.OpsWR, status verbs.WCStatus) uint32 {
	r.t.Helper()
	wr.Flags |= verbs.OpsSignaled | verbs.OpsTMSync
	wr.UnexpectedCnt = r.count
	wr.WRID = 1<<50 + uint64(wr.Handle) + uint64(wr.Opcode)<<32
	r.post(&wr)
	w := r.b.want(wr.WRID, status)
	if want := verbs.WCTMAdd + verbs.WCOpcode(wr.Opcode); w.Opcode != want && status == verbs.WCSuccess {
		r.t.Fatalf("opcode %d of a list operation, want %d", w.Opcode, want)
	}
	return wr.Handle
}

func (r *tagRig) post(wr *verbs.OpsWR) {
	r.t.Helper()
	if bad, err := r.srq.PostSRQOps(wr); err != nil {
		r.t.Fatalf("PostSRQOps: %v (%+v)", err, bad)
	}
}

// add posts a tagged receive of id into buf and waits until it is in the list.
func (r *tagRig) add(id, tag, mask uint64, buf []byte) uint32 {
	r.t.Helper()
	return r.do(verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(id, tag, mask, buf)}, verbs.WCSuccess)
}

func (r *tagRig) tagAdd(id, tag, mask uint64, buf []byte) verbs.TagAdd {
	return verbs.TagAdd{RecvWRID: id, SGList: sge(r.bmr, buf), Tag: tag, Mask: mask}
}

func (r *tagRig) del(hnd uint32, status verbs.WCStatus) {
	r.t.Helper()
	r.do(verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: hnd}, status)
}

func (r *tagRig) sync() { r.t.Helper(); r.do(verbs.OpsWR{Opcode: verbs.WRTagSync}, verbs.WCSuccess) }

// message writes a tagged message with n bytes of payload into the sender's memory, header first.
func (r *tagRig) message(op verbs.TMHOpcode, tag uint64, ctx uint32, n int) []byte {
	verbs.TMH{Opcode: op, Tag: tag, AppCtx: ctx}.Put(r.abuf)
	return r.abuf[:verbs.TMHSize+n]
}

// eager sends n bytes with the tag, header and payload as three entries of a list. The last one
// begins with the payload, or 4 bytes behind.
func (r *tagRig) eager(tag uint64, ctx uint32, n int) []byte {
	r.t.Helper()
	m := r.message(verbs.TMHEager, tag, ctx, n)
	cut, key := min(verbs.TMHSize+4*int(ctx%2), len(m)), r.amr.LKey()
	r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{{Data: m[:8], LKey: key}, {Data: m[8:cut:cut], LKey: key}, {Data: m[cut:], LKey: key}}})
	return m
}

// raw sends bytes of the sender's memory, or up to maxInline others, unchanged.
func (r *tagRig) raw(qp verbs.QP, m []byte) {
	r.t.Helper()
	if len(m) <= maxInline {
		r.a.send(qp, inline(77, verbs.SendSignaled, m))
	} else {
		r.a.send(qp, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: sge(r.amr, m)})
	}
}

// sent waits for the sender's completion, so that its memory can be used again.
func (r *tagRig) sent() { r.t.Helper(); r.a.want(77, verbs.WCSuccess) }

// match polls the MATCH of a message of several packets, or of a rendezvous.
func (r *tagRig) match(id, tag uint64, ctx uint32) {
	r.t.Helper()
	r.completes(verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: flagMatch, Tag: tag, Priv: ctx})
}

// halves polls the two completions of an expected message of several packets, or of a rendezvous.
func (r *tagRig) halves(id, tag uint64, ctx uint32, n int) {
	r.t.Helper()
	r.match(id, tag, ctx)
	r.completes(verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: flagData, ByteLen: uint32(n), QPNum: r.qb.Num()})
}

// whole polls the one completion of an expected message of one packet with n bytes of payload.
func (r *tagRig) whole(id, tag uint64, ctx uint32, n int) {
	r.t.Helper()
	r.completes(verbs.WC{WRID: id, Opcode: verbs.WCTMRecv, Flags: flagsBoth, ByteLen: uint32(n), QPNum: r.qb.Num(), Tag: tag, Priv: ctx})
}

// matched polls the completion or completions of an expected message and checks tag, priv, length
// and data.
func (r *tagRig) matched(id, tag uint64, ctx uint32, want, buf []byte) verbs.WC {
	r.t.Helper()
	w := r.b.want(id, verbs.WCSuccess)
	if w.Opcode != verbs.WCTMRecv || w.Flags&flagMatch == 0 || w.Tag != tag || w.Priv != ctx {
		r.t.Fatalf("%+v is not a MATCH of tag %#x", w, tag)
	}
	if w.Flags&flagsBoth != flagsBoth {
		w = r.b.want(id, verbs.WCSuccess)
		if w.Opcode != verbs.WCTMRecv || w.Flags&flagsBoth != flagData {
			r.t.Fatalf("%+v is no DATA_VALID", w)
		}
	}
	if int(w.ByteLen) != len(want) || !bytes.Equal(buf[:w.ByteLen], want) || w.Data != nil {
		r.t.Fatalf("tag %#x: %d bytes arrived, want %d", tag, w.ByteLen, len(want))
	}
	return w
}

// hits sends n bytes that receive id must match.
func (r *tagRig) hits(id, tag uint64, ctx uint32, n int) {
	r.t.Helper()
	m := r.eager(tag, ctx, n)
	r.matched(id, tag, ctx, m[verbs.TMHSize:], r.bbuf)
	r.sent()
}

// hit sends a short message that receive id must match.
func (r *tagRig) hit(id, tag uint64) { r.t.Helper(); r.hits(id, tag, uint32(id), 8) }

// plain polls the completion of a message that no entry has matched, whose bytes are in the next
// untagged buffer.
func (r *tagRig) plain(op verbs.WCOpcode, m []byte) verbs.WC {
	r.t.Helper()
	i := r.used % untaggedDepth * r.room
	w := r.inUntagged()
	if w.Opcode != op || w.Flags&flagsBoth != 0 || w.Tag != 0 || w.Priv != 0 {
		r.t.Fatalf("%+v is not of a message that no entry has matched, with opcode %d", w, op)
	}
	if !bytes.Equal(received(w, r.ubuf[i:]), m) {
		r.t.Fatalf("%+v: what is in the untagged buffer is not the %d bytes that were sent", w, len(m))
	}
	return w
}

// inUntagged polls the completion of a message in the next untagged buffer.
func (r *tagRig) inUntagged() verbs.WC {
	r.t.Helper()
	w := r.b.want(untaggedID+uint64(r.used), verbs.WCSuccess)
	r.used++
	return w
}

// noTag polls the completion of a NO_TAG message or of a FIN.
func (r *tagRig) noTag(m []byte) verbs.WC { r.t.Helper(); return r.plain(verbs.WCTMNoTag, m) }

// unexpected polls the completion of an unexpected message. It does not report it as handled.
func (r *tagRig) unexpected(m []byte) verbs.WC {
	r.t.Helper()
	if r.opts.RecvUnexpected {
		return r.plain(verbs.WCRecv, m)
	}
	return r.plain(verbs.WCTMRecv, m)
}

// handled takes the completion of an unexpected message, which is handled then: the next operation
// with a count says so.
func (r *tagRig) handled(m []byte) {
	r.t.Helper()
	r.unexpected(m)
	r.count++
}

// miss sends a short message that must be unexpected, and handles it.
func (r *tagRig) miss(tag uint64) {
	r.t.Helper()
	r.stocked()
	m := r.eager(tag, 0, 8)
	r.handled(m)
	r.sent()
}

// passed sends a short message that must not match a live entry, and makes all entries live again.
func (r *tagRig) passed(tag uint64) {
	r.t.Helper()
	r.miss(tag)
	r.sync()
}

// early sends a short unexpected message whose completion stays unpolled, and returns it.
func (r *tagRig) early(tag uint64, ctx uint32) (m []byte) {
	r.t.Helper()
	r.stocked()
	r.unpolled(func() {
		m = append(m, r.eager(tag, ctx, 8)...)
		r.sent()
	})
	return m
}

// unpolled runs f while the receiver's device is polled through another CQ only.
func (r *tagRig) unpolled(f func()) {
	r.t.Helper()
	cq := r.b.cq
	r.b.cq = r.spare
	f()
	r.b.cq = cq
}

// inErr waits until queue pairs have failed.
func (e *env) inErr(qps ...verbs.QP) {
	e.t.Helper()
	for _, qp := range qps {
		e.until("ERR", func() bool { return state(qp) == verbs.QPSErr })
	}
}

// state is the state that a queue pair is in: QP.State may be the one that it was last set to.
func state(qp verbs.QP) verbs.QPState {
	a, _, err := qp.Query()
	if err != nil {
		panic(err)
	}
	return a.State
}
