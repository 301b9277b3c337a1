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

// TMConfig are the limits of tag matching. The zero value is the recommended device.
type TMConfig struct {
	MaxNumTags int // largest tag list of one SRQ; default 1023; negative: a device without tag matching
	MaxOps     int // most list operations that an SRQ can have outstanding; default 65536
	MTU        int // bytes: larger eager messages (TMH included) give MATCH and DATA_VALID apart; default the QP's path MTU
}

// withTM is the configuration with tag matching as a test wants it.
func (c Config) withTM(tm hook.TM) Config {
	c.TM, c.tm = TMConfig{MaxNumTags: tm.MaxNumTags, MaxOps: tm.MaxOps, MTU: tm.MTU}, tm
	return c
}

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

// tmCaps is what DeviceAttr says (TMO 1.1).
func (c *Config) tmCaps() verbs.TMCaps {
	if c.tm.MaxNumTags < 0 {
		return verbs.TMCaps{}
	}
	return verbs.TMCaps{MaxRndvHdrSize: tmMaxRndvHdr, MaxNumTags: uint32(c.tm.MaxNumTags), Flags: verbs.TMCapRC,
		MaxOps: uint32(c.tm.MaxOps), MaxSGE: tmMaxSGE}
}

// tagQueue is the tag-matching half of an SRQ: the model of TMO 5.2 and the accounting of 3.4.
type tagQueue struct {
	s   *sharedQueue
	d   *Device
	cfg *hook.TM
	cq  *compQueue

	// The device. An entry is live when its stamp is below limit: entries become live all at once,
	// oldest included.
	list  *matching.Posted[uint32] // slots
	limit matching.Stamp
	h, c  uint16 // messages found unexpected; those that software has handled, as told by TM_SYNC (S of TMO 5.1)

	// The command queue: list operations that are posted, and the first of them whose slot is not
	// free yet.
	maxOps   uint32
	posted   uint32
	tail     uint32
	signaled uint32 // one above the newest signalled operation
	pending  fifo[tagOp]
	op       tagOp // the one being executed

	slots    []tagSlot
	slotBits uint
	free     []uint32 // ring of free slots
	head     uint32
	nfree    uint32

	rng   *rand.Rand
	polls int64
	later []tagLater
	slow  bool // on Device.slow
	syncs int
	mlx   mlxCounts

	messages int  // for KillQPAt and RNREvery
	parts    int  // for KillQPPart
	heldUp   bool // the last of them is to be offered again
}

// tagSlot is an element of the tag table.
type tagSlot struct {
	// The host's side.
	gen  uint32
	debt uint32 // completions to be polled before the slot is free again (expect_cqe of TMO 3.4)

	// The device's side: the entry that was put in last.
	hnd    uint32
	listed bool // in the list, not consumed
	never  bool // its tag has bits outside its mask: nothing matches it (TMO 3.1)
	entry  matching.Handle
	wrid   uint64
	buf    verbs.SGE
	count  int64 // told by the ADD, for QuirkSyncReq
}

// mlxCounts are what the mlx5 driver computes SYNC_REQ from (TMO 4.6). Not 16 bits wide: that is
// the quirk.
type mlxCounts struct {
	last int64 // count given last with any operation
	in   int64 // unexpected messages polled
	out  int64 // count given with the last ADD that had TM_SYNC
}

// noHandle goes with completions that concern no slot.
const noHandle = ^uint32(0)

// newTagQueue checks attr by TMO 1.2 and makes the tag-matching half of an SRQ.
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
	t.h, t.c = cfg.InitialCount, cfg.InitialCount
	t.mlx = mlxCounts{last: int64(t.c), in: int64(t.h), out: int64(t.c)}
	t.rng = rand.New(rand.NewPCG(cfg.Seed, uint64(p.d.lastSRQ)))
	if invariant.Enabled {
		t.startChecks()
	}
	t.activate()
	return t, nil
}

// activate makes every entry live when software has handled every unexpected message (rule 4 of TMO
// 5.2).
func (t *tagQueue) activate() {
	if t.c == t.h {
		t.limit = t.list.NextStamp()
		if invariant.Enabled {
			t.checkActivated()
		}
	}
}

// attachTags makes q a QP of a tag-matching SRQ, or does nothing for nil (TMO 1.3). Its receives
// complete on the SRQ's CQ.
func (q *queuePair) attachTags(t *tagQueue, sendWR uint32) {
	if t == nil {
		return
	}
	q.tm, q.rcq = t, t.cq
	if sendWR == 0 {
		q.dev = new(deviceQueue)
	}
}

// abandonTags ends what a QP that fails or goes has under way for its tag-matching SRQ.
func (q *queuePair) abandonTags() {
	if q.tm == nil {
		return
	}
	q.abandonRx()
	if q.dev != nil {
		q.abandonRndv()
	}
}

// strictErr reports a breach of V11, which only shows when an operation takes effect.
func (t *tagQueue) strictErr(what string) {
	if t.cfg.Strict {
		t.d.event(verbs.AsyncEvent{Type: verbs.EventSRQErr, QP: t.s.num, Err: t.breach("V11", what)})
	}
}

// breach is what a strict device says to a host that breaks a rule. Not inlined: posting should not
// carry it.
//
//go:noinline
func (t *tagQueue) breach(rule, what string) error {
	if invariant.Enabled && t.d.inv.strict {
		invariant.Broken(rule, "%s", what)
	}
	return fail("post_srq_ops", syscall.EINVAL, rule+": "+what)
}

// waiting is how many entries wait for a message.
func (t *tagQueue) waiting() (n int) {
	for i := range t.slots {
		if t.slots[i].listed {
			n++
		}
	}
	return n
}
