package soft

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
)

const (
	tmMaxRndvHdr    = 64
	tmMaxTags       = 1 << 20
	tmMaxOps        = 1 << 20
	tmMaxSGE        = 1
	tmDefaultTags   = 1023
	tmDefaultMaxOps = 1 << 16
)

// TMConfig are the limits of tag matching. The zero value has the recommended ones.
type TMConfig struct {
	MaxNumTags int // largest tag list of one SRQ; default 1023; negative: no tag matching
	MaxOps     int // most list operations that an SRQ can have outstanding; default 65536
	// MTU is the size in bytes (TMH included) above which an eager message completes with MATCH and
	// DATA_VALID apart; default the QP's path MTU.
	MTU int
}

// withTM implements softtest.WithTM.
func (c Config) withTM(tm hook.TM) Config {
	c.TM, c.tm = TMConfig{MaxNumTags: tm.MaxNumTags, MaxOps: tm.MaxOps, MTU: tm.MTU}, tm
	return c
}

// fillTM sets defaults of tag matching and checks what was set.
func (c *Config) fillTM() error {
	tm := &c.tm
	tm.MaxNumTags, tm.MaxOps, tm.MTU = c.TM.MaxNumTags, c.TM.MaxOps, c.TM.MTU
	if tm.MaxNumTags == 0 {
		tm.MaxNumTags = tmDefaultTags
	}
	if tm.MaxOps == 0 {
		tm.MaxOps = tmDefaultMaxOps
	}
	switch {
	case tm.MaxNumTags > tmMaxTags:
		return fmt.Errorf("TM.MaxNumTags is %d: use up to %d", tm.MaxNumTags, tmMaxTags)
	case tm.MaxOps < 1 || tm.MaxOps > tmMaxOps:
		return fmt.Errorf("TM.MaxOps is %d: use 1 to %d", tm.MaxOps, tmMaxOps)
	case tm.MTU < 0 || tm.DelayOps < 0 || tm.DelayData < 0 || tm.DelayFIN < 0 || tm.DropSync < 0:
		return fmt.Errorf("TM: MTU, delays and DropSync must not be negative")
	}
	return nil
}

// tmCaps returns DeviceAttr.TM (TMO 1.1).
func (c *Config) tmCaps() verbs.TMCaps {
	if c.tm.MaxNumTags < 0 {
		return verbs.TMCaps{}
	}
	return verbs.TMCaps{MaxRndvHdrSize: tmMaxRndvHdr, MaxNumTags: uint32(c.tm.MaxNumTags), Flags: verbs.TMCapRC,
		MaxOps: uint32(c.tm.MaxOps), MaxSGE: tmMaxSGE}
}

// tagQueue is the tag-matching part of an SRQ. It follows the model of a device in TMO 5.2, and the
// accounting of slots in TMO 3.4, which a driver does.
type tagQueue struct {
	s   *sharedQueue
	d   *Device
	cfg *hook.TM
	cq  *compQueue // of receives and list operations

	// The tag list. An entry is live if its stamp is below limit, else dormant.
	list  *matching.Posted[uint32] // entries that can match, with their slots
	limit matching.Stamp
	in    int64  // messages found unexpected; see h
	c     uint16 // of these, how many software has reported as handled (S of TMO 5.1)
	plain bool   // nothing of cfg changes how messages arrive

	reports verbs.WCOpcode // of completions of unexpected messages

	// The command queue. Positions count list operations from 0, modulo 2^32.
	maxOps   uint32      // most operations from tail to posted
	posted   uint32      // the next operation
	tail     uint32      // the first whose slot is in use: a polled completion frees those up to it
	signaled uint32      // one above the newest signalled operation
	pending  fifo[tagOp] // operations that take effect later (DelayOps)
	op       tagOp       // the one being posted

	// The slots, of which a handle has the index in its lower slotBits and the generation above.
	slots    []tagSlot
	slotBits uint
	free     []uint32 // ring of free slots; the first is at head
	head     uint32
	nfree    uint32

	// For hook.TM.
	rng      *rand.Rand // of delays
	polls    int64      // passes of the device while something is delayed
	later    []tagLater // completions and FINs that are delayed
	slow     bool       // in Device.slow
	syncs    int        // bare SYNCs (DropSync)
	mlx      mlxCounts
	messages int  // arrived (KillQPAt, RNREvery)
	parts    int  // packets arrived that are not the first of a message (KillQPPart)
	refused  bool // the newest message was refused (RNREvery) and will come again
}

// tagSlot is a slot of the tag list.
type tagSlot struct {
	// As the driver has it.
	gen       uint32 // of its handle
	expectCQE uint32 // completions to be polled until it is free (expect_cqe of TMO 3.4); 0: it is

	// As the device has it: the entry that was added last.
	hnd    uint32
	listed bool            // in the list: not matched, not removed
	never  bool            // no tag matches it, since its own has bits outside its mask (TMO 3.1)
	entry  matching.Handle // in tagQueue.list, unless never
	wrid   uint64          // of the receive
	buf    sge
	count  int64 // unexpected_cnt of its ADD, for QuirkSyncReq
}

// mlxCounts are, with tagQueue.in, the counts by which the mlx5 driver computes SYNC_REQ (TMO 4.6).
// They do not wrap at 16 bits as H and S do, which makes it wrong.
type mlxCounts struct {
	last int64 // unexpected_cnt of the last operation that had one
	out  int64 // unexpected_cnt of the last ADD with TM_SYNC
}

// noHandle is the handle in completions that concern no slot.
const noHandle = ^uint32(0)

// newTagQueue checks attr (TMO 1.2) and makes the tag-matching part of an SRQ.
func (p *protDomain) newTagQueue(attr *verbs.SRQInitAttr) (*tagQueue, error) {
	const op, need = "create_srq", verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM // the PD is p
	cfg := &p.d.cfg.tm
	if cfg.MaxNumTags < 0 {
		return nil, fail(op, syscall.EOPNOTSUPP, "this device has no tag matching (DeviceAttr.TM tells)")
	}
	if attr.Mask&need != need {
		return nil, fail(op, syscall.EINVAL, "a tag-matching SRQ needs SRQInitCQ and SRQInitTM in Mask")
	}
	cq, ok := attr.CQ.(*compQueue)
	switch {
	case !ok || cq.d != p.d || cq.gone:
		return nil, fail(op, syscall.EINVAL, "CQ must be a live completion queue of this device")
	case !cq.wantTags:
		return nil, fail(op, syscall.EINVAL, "the CQ of a tag-matching SRQ must be created with WCExWithTMInfo")
	case invariant.Enabled && p.d.inv.strict && attr.MaxWR > maxUntagged:
		invariant.Broken("V15", "%d untagged buffers: with more than 2^14 the counts of unexpected messages can be taken for equal", attr.MaxWR)
	case attr.TM.MaxNumTags == 0 || attr.TM.MaxNumTags > uint32(cfg.MaxNumTags):
		return nil, fail(op, syscall.EINVAL, "TM.MaxNumTags must be between 1 and the device's")
	case attr.TM.MaxOps == 0 || attr.TM.MaxOps > uint32(cfg.MaxOps):
		return nil, fail(op, syscall.EINVAL, "TM.MaxOps must be between 1 and the device's")
	}
	n := attr.TM.MaxNumTags + 1 // one slot is always free (TMO 3.4)
	t := &tagQueue{d: p.d, cfg: cfg, cq: cq, maxOps: attr.TM.MaxOps, slots: make([]tagSlot, n), free: make([]uint32, n), nfree: n}
	t.slotBits = uint(bits.Len32(n - 1))
	for i := range t.free {
		t.free[i] = uint32(i)
		t.slots[i].gen = 1
	}
	t.list = matching.NewPosted[uint32](binary.LittleEndian.Uint64(p.d.self.ID[:]))
	t.in, t.c = int64(cfg.InitialCount), cfg.InitialCount
	t.mlx = mlxCounts{last: t.in, out: t.in}
	if t.reports = verbs.WCTMRecv; cfg.RecvUnexpected {
		t.reports = verbs.WCRecv
	}
	t.plain = !(cfg.QuirkSyncReq || cfg.LiveGoDormant || cfg.RNRWhenEmpty) && cfg.KillQPAt|cfg.RNREvery == 0
	t.rng = rand.New(rand.NewPCG(cfg.Seed, uint64(p.d.lastSRQ)))
	if invariant.Enabled {
		t.startChecks()
	}
	t.activate()
	return t, nil
}

// h is the messages found unexpected as devices count them (H of TMO 5.1).
func (t *tagQueue) h() uint16 { return uint16(t.in) }

// activate makes all entries live if software has handled all unexpected messages (rule 4 of TMO
// 5.2).
func (t *tagQueue) activate() {
	if t.c == t.h() {
		t.limit = t.list.NextStamp()
		if invariant.Enabled {
			t.checkActivated()
		}
	}
}

// abandonTags ends the message and the rendezvous that a QP of a tag-matching SRQ has under way
// when it fails or is reset.
func (q *queuePair) abandonTags() {
	if q.tm == nil {
		return
	}
	q.abandonRx()
	if q.dev != nil {
		q.abandonRndv()
	}
}

// strictErr reports, for Strict, a breach of V11 that shows only when an operation takes effect.
func (t *tagQueue) strictErr(what string) {
	if t.cfg.Strict {
		t.d.event(verbs.AsyncEvent{Type: verbs.EventSRQErr, QP: t.s.num, Err: t.breach("V11", what)})
	}
}

// breach returns the error, for Strict, of a program that breaks a rule. It is not inlined, so that
// posting stays small.
//
//go:noinline
func (t *tagQueue) breach(rule, what string) error {
	if invariant.Enabled && t.d.inv.strict {
		invariant.Broken(rule, "%s", what)
	}
	return fail("post_srq_ops", syscall.EINVAL, rule+": "+what)
}
