//go:build invariants

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs"
)

// tagChecker is a tag queue of 8 slots that a test spoils.
type tagChecker struct {
	*testing.T
	t   *tagQueue
	q   *queuePair
	cq  verbs.CQ
	srq *sharedQueue
}

func newTagChecker(t *testing.T, strict bool, tm TMConfig) *tagChecker {
	d, err := Open(Config{Fabric: NewFabric(FabricOptions{}), TM: tm})
	require.NoError(t, err)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQInitAttr{CQE: 16, WCFlags: verbs.WCExWithTMInfo})
	require.NoError(t, err)
	if strict {
		d.Strict()
	}
	srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM, CQ: cq,
		SRQAttr: verbs.SRQAttr{MaxWR: 64}, TM: verbs.TMCap{MaxNumTags: 7, MaxOps: 4}})
	require.NoError(t, err)
	q, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq, Type: verbs.QPTRC})
	require.NoError(t, err)
	c := &tagChecker{T: t, q: q.(*queuePair), cq: cq, srq: srq.(*sharedQueue)}
	c.t = c.srq.tm
	c.q.state, c.q.attr.PathMTU = verbs.QPSRTR, verbs.MTU4096
	return c
}

// op posts a list operation and returns the handle.
func (c *tagChecker) op(wr verbs.OpsWR) uint32 {
	c.Helper()
	_, err := c.srq.PostSRQOps(&wr)
	require.NoError(c, err)
	return wr.Handle
}

func (c *tagChecker) add(tag uint64) uint32 {
	c.Helper()
	return c.op(verbs.OpsWR{Flags: verbs.OpsSignaled, Add: verbs.TagAdd{RecvWRID: tag, Tag: tag, Mask: ^uint64(0)}})
}

// message lets one with this tag arrive.
func (c *tagChecker) message(tag uint64) {
	msg := make([]byte, verbs.TMHSize)
	verbs.TMH{Opcode: verbs.TMHEager, Tag: tag}.Put(msg)
	h := header{op: opSend, flags: flagFirst | flagLast, length: verbs.TMHSize, total: verbs.TMHSize, psn: c.q.expect}
	_, _ = c.q.recvTM(nil, &h, msg)
}

func (c *tagChecker) poll() {
	var wc [16]verbs.WC
	_, err := c.cq.PollCQ(wc[:])
	require.NoError(c, err)
}

// TestCheckTagsSound goes the way of a few receives without a violation, so that those below mean something.
func TestCheckTagsSound(t *testing.T) {
	c := newTagChecker(t, true, TMConfig{})
	for range 20 {
		for tag := range uint64(3) {
			c.add(tag)
			c.poll()
		}
		c.message(2)
		c.message(0)
		c.poll()
		c.message(1)
		c.poll()
	}
	require.Empty(t, c.t.d.inv.tags[c.t].recs)
}

func TestCheckTwoAtOnce(t *testing.T) {
	c := newTagChecker(t, false, TMConfig{})
	c.add(1)
	c.t.d.inv.tags[c.t].busy = "a list operation"
	require.Contains(t, invarianttest.Violates(t, "V10", func() { c.message(1) }), "an arrival begins inside a list operation")
}

func TestCheckActivationFirst(t *testing.T) {
	c := newTagChecker(t, false, TMConfig{})
	o := tagOp{op: verbs.WRTagDel, hnd: c.add(1)}
	_ = c.t.checkOp(&o)
	invarianttest.Violates(t, "V10", c.t.activate)
}

// TestCheckOldestLive: the device must give a message to the oldest live entry that matches.
func TestCheckOldestLive(t *testing.T) {
	c := newTagChecker(t, false, TMConfig{})
	one := c.add(1)
	two := c.add(1)
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(1, true, two) })
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(1, false, 0) })
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(2, true, one) })
	c.t.checkAsleep()
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(1, true, one) })
}

// TestCheckReceiveEndsOnce is V12 by what goes wrong in the device.
func TestCheckReceiveEndsOnce(t *testing.T) {
	end := verbs.WC{Opcode: verbs.WCTMRecv}
	c := newTagChecker(t, false, TMConfig{})
	h := c.add(1)
	invarianttest.Violates(t, "V12", func() { c.t.cq.pushTM(&end, c.t, h, 0, false) }) // without a match
	c.message(1)
	invarianttest.Violates(t, "V12", func() { c.t.cq.pushTM(&end, c.t, h, 0, false) })   // twice
	invarianttest.Violates(t, "V12", func() { c.t.cq.pushTM(&end, c.t, h+8, 0, false) }) // of nothing
}

// TestCheckHandles is V13 by what goes wrong in the device.
func TestCheckHandles(t *testing.T) {
	c := newTagChecker(t, false, TMConfig{})
	h := c.add(1)
	invarianttest.Violates(t, "V13", func() { c.t.pay(h, 2) }) // nothing was polled

	c = newTagChecker(t, false, TMConfig{})
	c.add(1)
	c.t.free[c.t.head], c.t.free[c.t.head+1] = c.t.free[c.t.head+1], c.t.free[c.t.head]
	invarianttest.Violates(t, "V13", func() { c.add(2) }) // out of turn

	c = newTagChecker(t, false, TMConfig{})
	h = c.add(1)
	c.t.slots[h&7].debt++
	invarianttest.Violates(t, "V13", c.t.checkNow)

	c = newTagChecker(t, false, TMConfig{})
	for tag := range uint64(7) {
		c.add(tag)
		c.poll()
	}
	c.t.nfree++
	invarianttest.Violates(t, "V14", func() { c.add(9) }) // the slot that stays free
}

// TestCheckBooks: the tag queue's parts contradict each other.
func TestCheckBooks(t *testing.T) {
	for name, spoil := range map[string]func(c *tagChecker, h uint32){
		"a free slot too many":    func(c *tagChecker, _ uint32) { c.t.nfree-- },
		"the ring of free slots":  func(c *tagChecker, _ uint32) { c.t.free[c.t.head] ^= 1 },
		"a slot is not listed":    func(c *tagChecker, h uint32) { c.t.slots[h&7].listed = false },
		"an entry left the list":  func(c *tagChecker, h uint32) { c.t.list.Remove(c.t.slots[h&7].entry) },
		"a live entry is dormant": func(c *tagChecker, _ uint32) { c.t.limit = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTagChecker(t, false, TMConfig{})
			h := c.add(1)
			require.NotPanics(t, c.t.checkNow)
			spoil(c, h)
			invarianttest.Violates(t, "tags", c.t.checkNow)
		})
	}
}

// TestCheckTransport: what a transport must not do, in builds with checks, is not an error but a Violation.
func TestCheckTransport(t *testing.T) {
	post := func(c *tagChecker, wr verbs.OpsWR) func() { return func() { _, _ = c.srq.PostSRQOps(&wr) } }
	for name, v := range map[string]struct {
		rule string
		do   func(c *tagChecker) func()
	}{
		"tag outside its mask": {"V19", func(c *tagChecker) func() { return post(c, verbs.OpsWR{Add: verbs.TagAdd{Tag: 3, Mask: 1}}) }},
		"unsignalled DEL of a live entry": {"V11", func(c *tagChecker) func() {
			return post(c, verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: c.add(1)})
		}},
		"unsignalled DEL of a consumed entry": {"V11", func(c *tagChecker) func() {
			h := c.add(1)
			c.message(1)
			return post(c, verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h})
		}},
		"no operation signalled": {"V14", func(c *tagChecker) func() {
			for range 3 {
				c.op(verbs.OpsWR{Opcode: verbs.WRTagSync})
			}
			return post(c, verbs.OpsWR{Opcode: verbs.WRTagSync})
		}},
		"completion queue too small": {"V15", func(c *tagChecker) func() {
			return func() {
				for range 17 {
					c.t.cq.push(&verbs.WC{}, nil, 0, false)
				}
			}
		}},
		"too many untagged buffers": {"V15", func(c *tagChecker) func() {
			return func() {
				_, _ = c.srq.pd.CreateSRQ(&verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM,
					Type: verbs.SRQTypeTM, CQ: c.cq, SRQAttr: verbs.SRQAttr{MaxWR: 1<<14 + 1}, TM: verbs.TMCap{MaxNumTags: 1, MaxOps: 1}})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			invarianttest.Violates(t, v.rule, v.do(newTagChecker(t, true, TMConfig{})))
			require.NotPanics(t, v.do(newTagChecker(t, false, TMConfig{})), "anybody else gets an error, or what he asked for")
		})
	}
}

// TestCheckLargeList looks at everything now and then only.
func TestCheckLargeList(t *testing.T) {
	d, _, _, srq := tagRig(t, TMConfig{})
	require.Greater(t, len(srq.tm.slots), smallList)
	srq.tm.nfree--
	ops := 0
	text := invarianttest.Violates(t, "tags", func() {
		for ; ops < 2*checkEach; ops++ {
			srq.tm.checkNow()
		}
	})
	require.Contains(t, text, "counted as free")
	require.Equal(t, checkEach-1, ops)
	require.NotNil(t, d.inv.tags[srq.tm])
}
