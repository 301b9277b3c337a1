package soft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/taglist"
)

const (
	tmMaxRndvHdr    = 64
	tmMaxTags       = 1 << 20
	tmMaxOps        = 1 << 20
	tmDefaultTags   = 1023
	tmDefaultMaxOps = 1 << 16
	maxUntagged     = 1 << 14 // the most untagged buffers with which the counts cannot be mistaken (V15)
)

// TMConfig are the limits of tag matching. The zero value has the recommended ones.
type TMConfig struct {
	MaxNumTags int // largest tag list of one SRQ; default 1023; negative: no tag matching
	MaxOps     int // most list operations that an SRQ can have outstanding; default 65536
	// MTU is the size in bytes (TMH included) above which an eager message completes with MATCH and
	// DATA_VALID apart; default the QP's path MTU.
	MTU int
}

// fillTM sets defaults of tag matching and checks what was set.
func (c *Config) fillTM() error {
	tm := &c.TM
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
	case tm.MTU < 0:
		return errors.New("TM.MTU must not be negative")
	}
	return checkFaults(c.tmFaults)
}

// tmCaps returns DeviceAttr.TM (TMO 1.1).
func (c *Config) tmCaps() verbs.TMCaps {
	if c.TM.MaxNumTags < 0 {
		return verbs.TMCaps{}
	}
	return verbs.TMCaps{MaxRndvHdrSize: tmMaxRndvHdr, MaxNumTags: uint32(c.TM.MaxNumTags), Flags: verbs.TMCapRC,
		MaxOps: uint32(c.TM.MaxOps), MaxSGE: taglist.MaxSGE}
}

// tagQueue is the tag-matching part of an SRQ: the tag list, and how its completions and its
// messages come to queues and queue pairs.
type tagQueue struct {
	s  *sharedQueue
	d  *Device
	cq *compQueue // of receives and list operations

	list    taglist.List
	op      taglist.Op     // the one being posted
	plain   bool           // nothing of faults changes how messages arrive
	reports verbs.WCOpcode // of completions of unexpected messages
	names   uint32         // mask of the queue pair's number in a completion with MATCH
	faults  *tagFaults     // for tests; nil in production
}

// newTagQueue checks attr (TMO 1.2) and makes the tag-matching part of an SRQ.
func (p *protDomain) newTagQueue(attr *verbs.SRQInitAttr) (*tagQueue, error) {
	const op, need = "create_srq", verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM // the PD is p
	cfg := &p.d.cfg.TM
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
	case p.d.inv.isStrict() && attr.MaxWR > maxUntagged:
		invariant.Broken("V15", "%d untagged buffers: with more than 2^14 the counts of unexpected messages can be taken for equal", attr.MaxWR)
	case attr.TM.MaxNumTags == 0 || attr.TM.MaxNumTags > uint32(cfg.MaxNumTags):
		return nil, fail(op, syscall.EINVAL, "TM.MaxNumTags must be between 1 and the device's")
	case attr.TM.MaxOps == 0 || attr.TM.MaxOps > uint32(cfg.MaxOps):
		return nil, fail(op, syscall.EINVAL, "TM.MaxOps must be between 1 and the device's")
	}
	t := &tagQueue{d: p.d, cq: cq, plain: true, reports: verbs.WCTMRecv, names: ^uint32(0)}
	list := taglist.Config{Tags: attr.TM.MaxNumTags, Ops: attr.TM.MaxOps, Seed: binary.LittleEndian.Uint64(p.d.self.ID[:])}
	if p.d.nic.mutesTags() {
		t.names = 0
	}
	if f := p.d.cfg.tmFaults; f != nil {
		list.Quirks = t.inject(f)
	}
	t.list.Init(list)
	t.startChecks()
	return t, nil
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

// PostSRQOps posts list operations (TMO 3). Those before the first that fails take effect.
func (s *sharedQueue) PostSRQOps(wr *verbs.OpsWR) (*verbs.OpsWR, error) {
	if invariant.Enabled {
		defer s.d.enter("post_srq_ops")()
	}
	const op = "post_srq_ops"
	t := s.tm
	switch {
	case t == nil && s.d.cfg.TM.MaxNumTags < 0:
		return nil, fail(op, syscall.EOPNOTSUPP, "this device has no tag matching") // bad_wr is not written (TMO 3.3)
	case t == nil || s.gone:
		return wr, fail(op, syscall.EINVAL, "not a live tag-matching SRQ")
	}
	for ; wr != nil; wr = wr.Next {
		if err := t.list.Post(wr, &t.op); err != nil {
			return wr, err
		}
		t.checkPosted(&t.op)
		if t.faults == nil || !t.faults.delays(&t.op) {
			t.execute(&t.op)
		}
	}
	if t.faults != nil && t.faults.slow && t.d.armed {
		t.d.notif.Wake()
	}
	return nil, nil
}

// execute has a list operation take effect.
func (t *tagQueue) execute(o *taglist.Op) {
	var wc verbs.WC
	due, signaled := t.list.Execute(o, &wc)
	t.checkExecuted(o, &wc)
	if signaled {
		t.cq.push(&wc, frees{tm: t, hnd: due.Handle, upto: due.Upto}, false)
	}
}

// mtu is the size in bytes above which a message completes as one of several packets.
func (t *tagQueue) mtu(q *queuePair) int {
	if n := t.d.cfg.TM.MTU; n > 0 {
		return n
	}
	return q.attr.PathMTU.Bytes()
}
