package verbstest

import (
	"bytes"
	"sync"
	"testing"

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
}

// tagRig is a sender, which is a plain RC peer, and a receiver with a tag-matching SRQ.
type tagRig struct {
	*env
	a, b   *node
	qa, qb verbs.QP
	srq    verbs.SRQ
	tcq    verbs.CQ // of srq
	spare  verbs.CQ // of the receiver, for unpolled
	amr    verbs.MR
	abuf   []byte
	bmr    verbs.MR
	bbuf   []byte
	umr    verbs.MR
	ubuf   []byte // untagged buffers, room bytes each
	room   int
	count  uint32 // unexpected messages handled (C of TMO 5.1)
	opts   TagOptions
	posted int // untagged buffers
}

const (
	untaggedSize  = 100_000
	untaggedDepth = 64
	untaggedID    = 1 << 40 // of the first untagged buffer
	exact         = ^uint64(0)
)

// newTagRig is a rig for messages of up to 4 MiB, or unexpected ones of untaggedSize.
func newTagRig(t *testing.T, open Opener, opts TagOptions, tags, ops uint32) *tagRig {
	t.Helper()
	r := newRig(t, open, opts, tags, ops)
	r.memory(4<<20, untaggedSize)
	return r
}

// newSmallRig is a rig for short messages, which costs less to set up.
func newSmallRig(t *testing.T, open Opener, opts TagOptions, tags, ops uint32) *tagRig {
	t.Helper()
	r := newRig(t, open, opts, tags, ops)
	r.memory(64<<10, 4096)
	return r
}

func newRig(t *testing.T, open Opener, opts TagOptions, tags, ops uint32) *tagRig {
	t.Helper()
	e := newEnv(t, open, 2)
	r := &tagRig{env: e, a: e.nodes[0], b: e.nodes[1], opts: opts, count: opts.InitialCount}
	r.tcq, r.srq = r.b.tagSRQ(tags, ops)
	r.b.cq = r.tcq
	r.qa, r.qb = e.connect(r.a, r.b, qpConf{}, r.conf())
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
	copy(r.abuf, payload())
}

// payload is the data that senders send. It is made once, since most tests need little of it.
var payload = sync.OnceValue(func() []byte { return pattern(4<<20, 3) })

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

// eager sends n bytes with the tag, header and payload as two entries of a list.
func (r *tagRig) eager(tag uint64, ctx uint32, n int) []byte {
	r.t.Helper()
	m := r.message(verbs.TMHEager, tag, ctx, n)
	key := r.amr.LKey()
	r.a.send(r.qa, verbs.SendWR{WRID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{{Data: m[:8], LKey: key}, {Data: m[8:20:20][:min(12, len(m)-8)], LKey: key}, {Data: m[min(20, len(m)):], LKey: key}}})
	return m
}

// sent waits for the sender's completion, so that its memory can be used again.
func (r *tagRig) sent() { r.t.Helper(); r.a.want(77, verbs.WCSuccess) }

// matched polls the completion or completions of an expected message and checks tag, priv, length
// and data.
func (r *tagRig) matched(id, tag uint64, ctx uint32, want, buf []byte) verbs.WC {
	r.t.Helper()
	w := r.b.want(id, verbs.WCSuccess)
	const both = verbs.WCFlagTMMatch | verbs.WCFlagTMDataValid
	if w.Opcode != verbs.WCTMRecv || w.Flags&verbs.WCFlagTMMatch == 0 || w.Tag != tag || w.Priv != ctx {
		r.t.Fatalf("%+v is not a MATCH of tag %#x", w, tag)
	}
	if w.Flags&both != both {
		w = r.b.want(id, verbs.WCSuccess)
		if w.Opcode != verbs.WCTMRecv || w.Flags&both != verbs.WCFlagTMDataValid {
			r.t.Fatalf("%+v is no DATA_VALID", w)
		}
	}
	if int(w.ByteLen) != len(want) || !bytes.Equal(buf[:w.ByteLen], want) || w.Data != nil {
		r.t.Fatalf("tag %#x: %d bytes arrived, want %d", tag, w.ByteLen, len(want))
	}
	return w
}

// unexpected polls the completion of an unexpected message in untagged buffer k and checks it. It
// does not report the message as handled.
func (r *tagRig) unexpected(k int, msg []byte) verbs.WC {
	r.t.Helper()
	w := r.b.want(untaggedID+uint64(k), verbs.WCSuccess)
	const flags = verbs.WCFlagTMMatch | verbs.WCFlagTMDataValid
	want := verbs.WCTMRecv
	if r.opts.RecvUnexpected {
		want = verbs.WCRecv
	}
	if w.Opcode != want || w.Flags&flags != 0 || w.Tag != 0 || w.Priv != 0 {
		r.t.Fatalf("%+v is not an unexpected message", w)
	}
	i := k % untaggedDepth * r.room
	if !bytes.Equal(received(w, r.ubuf[i:]), msg) {
		r.t.Fatalf("the message in untagged buffer %d is not what was sent: %d bytes, want %d", k, w.ByteLen, len(msg))
	}
	return w
}
