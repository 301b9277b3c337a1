//go:build invariants

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// tagChecker is a tag queue of 8 slots that a test spoils.
type tagChecker struct {
	*testing.T
	t   *tagQueue
	q   *queuePair
	cq  verbs.CQ
	srq *sharedQueue
}

func newTagChecker(t *testing.T, strict bool, tm hook.TM) *tagChecker {
	d, err := Open(Config{Fabric: NewFabric()}.withTM(tm))
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
func (c *tagChecker) message(tag uint64) { c.arrives(tag, verbs.TMHSize, 0) }

// begins lets the first packet of a longer one arrive.
func (c *tagChecker) begins(tag uint64) { c.arrives(tag, tmMaxRndvHdr, restSize) }

const restSize = 8 // of the message of begins

// arrives lets a packet of size bytes arrive, of a message that has rest bytes more.
func (c *tagChecker) arrives(tag uint64, size, rest int) {
	msg := make([]byte, size)
	verbs.TMH{Opcode: verbs.TMHEager, Tag: tag}.Put(msg)
	h := wire.Header{Op: wire.OpSend, Flags: wire.FlagFirst, Status: 7, Length: uint32(size), Total: uint64(size + rest), PSN: c.q.expect}
	if rest == 0 {
		h.Flags |= wire.FlagLast
	}
	c.q.recvTM(nil, &h, msg)
}

// recv posts a buffer for unexpected messages, and returns it and its region.
func (c *tagChecker) recv() ([]byte, verbs.MR) {
	c.Helper()
	buf := make([]byte, 128)
	mr, err := c.srq.pd.RegMR(buf, verbs.AccessLocalWrite)
	require.NoError(c, err)
	_, err = c.srq.PostSRQRecv(&verbs.RecvWR{WRID: 9, SGList: []verbs.SGE{{Data: buf, LKey: mr.LKey()}}})
	require.NoError(c, err)
	return buf, mr
}

// sync tells the device how many messages were handled.
func (c *tagChecker) sync(count uint32) {
	c.Helper()
	c.op(verbs.OpsWR{Opcode: verbs.WRTagSync, Flags: verbs.OpsSignaled | verbs.OpsTMSync, UnexpectedCnt: count})
	c.poll()
}

func (c *tagChecker) poll() {
	var wc [16]verbs.WC
	_, err := c.cq.PollCQ(wc[:])
	require.NoError(c, err)
}

// TestCheckTagsSound goes the way of a few receives without a violation, so that those below mean
// something.
func TestCheckTagsSound(t *testing.T) {
	c := newTagChecker(t, true, hook.TM{})
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
	c := newTagChecker(t, false, hook.TM{})
	c.add(1)
	c.t.d.inv.tags[c.t].busy = "a list operation"
	require.Contains(t, invarianttest.Violates(t, "V10", func() { c.message(1) }), "an arrival begins inside a list operation")
}

func TestCheckActivationFirst(t *testing.T) {
	c := newTagChecker(t, false, hook.TM{})
	o := tagOp{op: verbs.WRTagDel, hnd: c.add(1)}
	_ = c.t.checkOp(&o)
	invarianttest.Violates(t, "V10", c.t.activate)
}

// TestCheckCountsSound: H and S of TMO 5.1 by an account of our own, through all that counts and
// that does not.
func TestCheckCountsSound(t *testing.T) {
	for name, tm := range map[string]hook.TM{
		"plain":   {},
		"wrap":    {InitialCount: 65535},
		"dormant": {LiveGoDormant: true},
		"lossy":   {DropSync: 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTagChecker(t, true, tm)
			model := c.t.d.inv.tags[c.t]
			first := tm.InitialCount
			c.add(1)
			c.poll()
			c.message(2) // finds no buffer
			c.message(2)
			require.Equal(t, first, model.h)
			c.recv()
			c.message(2)
			require.Equal(t, first+1, model.h)
			c.recv()
			c.message(0)
			require.Equal(t, first+2, model.h)
			c.sync(uint32(first) + 2)
			c.sync(uint32(first) + 2) // lossy has lost one
			require.Equal(t, first+2, model.s)
			c.message(1)
			require.Equal(t, first+2, model.h, "matched")
			c.recv()
			c.begins(3)
			require.Equal(t, first+3, model.h)
			require.NoError(t, c.q.Destroy())
			require.Equal(t, first+2, model.h, "cut short")
			require.NotPanics(t, c.t.checkNow)
		})
	}
}

// TestCheckCounts is what a device does that keeps one of the counts wrong.
func TestCheckCounts(t *testing.T) {
	c := newTagChecker(t, false, hook.TM{})
	c.t.in++ // a message that found no buffer was counted
	invarianttest.Violates(t, "tags", func() { c.message(1) })

	c = newTagChecker(t, false, hook.TM{})
	c.recv()
	c.message(1)
	c.t.c++
	require.Contains(t, invarianttest.Violates(t, "tags", func() { c.add(1) }), "1 messages as unexpected and 1 of them as handled; 1 were, and 0")

	c = newTagChecker(t, false, hook.TM{})
	c.recv()
	c.begins(1)
	c.t.in-- // before the message is cut short: once too often
	invarianttest.Violates(t, "tags", c.t.checkNow)
}

// TestCheckActivates: entries are live when the counts are equal, and only then; what the device
// takes for its limit does not say so.
func TestCheckActivates(t *testing.T) {
	c := newTagChecker(t, false, hook.TM{})
	c.recv()
	c.message(1)
	c.add(1)
	require.False(t, c.t.d.inv.tags[c.t].recs[c.t.slots[0].hnd].live)
	limit := c.t.limit
	c.t.limit = c.t.list.NextStamp() // live all the same
	invarianttest.Violates(t, "tags", c.t.checkNow)
	c.t.limit = limit
	c.sync(1)
	require.True(t, c.t.d.inv.tags[c.t].recs[c.t.slots[0].hnd].live)
	c.t.limit = limit // never became live
	invarianttest.Violates(t, "tags", c.t.checkNow)
	invarianttest.Violates(t, "V2", func() {
		c.t.d.inv.tags[c.t].busy = ""
		c.message(1)
	})
}

// TestCheckOldestLive: the device must give a message to the oldest live entry that matches.
func TestCheckOldestLive(t *testing.T) {
	c := newTagChecker(t, false, hook.TM{})
	one := c.add(1)
	two := c.add(1)
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(c.q, 1, true, two) })
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(c.q, 1, false, 0) })
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(c.q, 2, true, one) })
	c.t.checkAsleep()
	invarianttest.Violates(t, "V2", func() { c.t.checkMatch(c.q, 1, true, one) })
}

// TestCheckReceiveEndsOnce is V12 by what goes wrong in the device.
func TestCheckReceiveEndsOnce(t *testing.T) {
	end := verbs.WC{Opcode: verbs.WCTMRecv}
	c := newTagChecker(t, false, hook.TM{})
	h := c.add(1)
	invarianttest.Violates(t, "V12", func() { c.t.cq.push(&end, frees{tm: c.t, hnd: h}, false) }) // without a match
	c.message(1)
	invarianttest.Violates(t, "V12", func() { c.t.cq.push(&end, frees{tm: c.t, hnd: h}, false) })     // twice
	invarianttest.Violates(t, "V12", func() { c.t.cq.push(&end, frees{tm: c.t, hnd: h + 8}, false) }) // of nothing
}

// TestCheckTerminal is V12 by ends that never come when a queue pair fails or goes in the middle of
// messages.
func TestCheckTerminal(t *testing.T) {
	ends := map[string]func(c *tagChecker){
		"error":   func(c *tagChecker) { _ = c.q.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState) },
		"reset":   func(c *tagChecker) { _ = c.q.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState) },
		"destroy": func(c *tagChecker) { _ = c.q.Destroy() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			start := func(tag uint64, tm hook.TM) *tagChecker {
				c := newTagChecker(t, false, tm)
				buf, mr := c.recv()
				c.op(verbs.OpsWR{Flags: verbs.OpsSignaled, Add: verbs.TagAdd{RecvWRID: 1, Tag: 1, Mask: ^uint64(0),
					SGList: []verbs.SGE{{Data: buf, LKey: mr.LKey()}}}})
				c.poll()
				c.begins(tag)
				require.True(t, c.q.rx.active)
				return c
			}
			for _, tag := range []uint64{1, 2} { // a matched message, an unexpected one
				c := start(tag, hook.TM{})
				require.NotPanics(t, func() { end(c) })
				c = start(tag, hook.TM{})
				c.q.rx = rxMessage{} // forgotten
				invarianttest.Violates(t, "V12", func() { end(c) })
			}
			c := start(1, hook.TM{DelayData: 1000})
			h := wire.Header{Op: wire.OpSend, Flags: wire.FlagLast, Length: restSize, Total: tmMaxRndvHdr + restSize, PSN: c.q.expect}
			c.q.recvTM(c.q.link, &h, make([]byte, restSize))
			require.Len(t, c.t.later, 1, "its end is on its way")
			require.NotPanics(t, func() { end(c) })
		})
	}
}

// TestCheckHandles is V13 by what goes wrong in the device.
func TestCheckHandles(t *testing.T) {
	c := newTagChecker(t, false, hook.TM{})
	h := c.add(1)
	invarianttest.Violates(t, "V13", func() { c.t.release(h, 2) }) // nothing was polled

	c = newTagChecker(t, false, hook.TM{})
	c.add(1)
	c.t.free[c.t.head], c.t.free[c.t.head+1] = c.t.free[c.t.head+1], c.t.free[c.t.head]
	invarianttest.Violates(t, "V13", func() { c.add(2) }) // out of turn

	c = newTagChecker(t, false, hook.TM{})
	h = c.add(1)
	c.t.slots[h&7].expectCQE++
	invarianttest.Violates(t, "V13", c.t.checkNow)

	c = newTagChecker(t, false, hook.TM{})
	for tag := range uint64(7) {
		c.add(tag)
		c.poll()
	}
	c.t.nfree++
	invarianttest.Violates(t, "V14", func() { c.add(9) }) // the slot that stays free

	c = newTagChecker(t, false, hook.TM{})
	c.add(1)
	c.t.head = 0 // the slot is free and its generation has not moved on
	c.t.slots[0].expectCQE = 0
	require.Contains(t, invarianttest.Violates(t, "V13", func() { c.add(2) }), "given out while completions")
}

// TestCheckAccounts is what the accounts of an entry, and of the operations, have not seen coming:
// a second time, or without a cause.
func TestCheckAccounts(t *testing.T) {
	add, del := verbs.WC{Opcode: verbs.WCTMAdd}, verbs.WC{Opcode: verbs.WCTMDel}
	for name, v := range map[string]struct {
		rule, text string
		do         func(c *tagChecker, h uint32)
	}{
		"inserted":             {"once", "takes effect twice", func(c *tagChecker, h uint32) { c.t.checkInserted(h) }},
		"inserted unknown":     {"once", "takes effect twice", func(c *tagChecker, h uint32) { c.t.checkInserted(h + 8) }},
		"added":                {"once", "the ADD of", func(c *tagChecker, h uint32) { c.t.checkPolled(&add, h); c.t.checkPolled(&add, h) }},
		"deleted, never asked": {"once", "a DEL of", func(c *tagChecker, h uint32) { c.t.checkPolled(&del, h) }},
		"freed unknown":        {"once", "is freed twice", func(c *tagChecker, h uint32) { c.t.checkFreed(h + 8) }},
		"freed": {"once", "is freed twice", func(c *tagChecker, h uint32) {
			c.t.d.inv.tags[c.t].recs[h].misused = true // what it owes is another rule's
			c.t.checkFreed(h)
			c.t.checkFreed(h)
		}},
		"removed, the DEL says no": {"tags", "has the outcome false", func(c *tagChecker, h uint32) { c.t.checkRemoved(h, false) }},
		"removed unknown":          {"tags", "has the outcome true", func(c *tagChecker, h uint32) { c.t.checkRemoved(h+8, true) }},
		"too many operations":      {"V14", "are outstanding", func(c *tagChecker, h uint32) { c.t.posted = c.t.tail + c.t.maxOps + 1; c.t.checkPostedOp() }},
		"signalled, not posted":    {"order", "the newest signalled", func(c *tagChecker, h uint32) { c.t.signaled = c.t.posted + 1; c.t.checkPostedOp() }},
		"handle used again": {"V13", "which is used again", func(c *tagChecker, h uint32) {
			c.t.polled(&verbs.WC{Opcode: verbs.WCTMRecv, WRID: 1}, h+8, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTagChecker(t, true, hook.TM{})
			h := c.add(1)
			require.Contains(t, invarianttest.Violates(t, v.rule, func() { v.do(c, h) }), v.text)
		})
	}
}

// TestCheckBooks: the tag queue's parts contradict each other.
func TestCheckBooks(t *testing.T) {
	for name, spoil := range map[string]func(c *tagChecker, h uint32){
		"a free slot too many":    func(c *tagChecker, _ uint32) { c.t.nfree-- },
		"the ring of free slots":  func(c *tagChecker, _ uint32) { c.t.free[c.t.head] ^= 1 },
		"a slot is not listed":    func(c *tagChecker, h uint32) { c.t.slots[h&7].listed = false },
		"an entry left the list":  func(c *tagChecker, h uint32) { c.t.list.Remove(c.t.slots[h&7].entry) },
		"a live entry is dormant": func(c *tagChecker, _ uint32) { c.t.limit = 0 },
		"nothing owed in use":     func(c *tagChecker, h uint32) { c.t.slots[h&7].expectCQE = 0 },
		"an entry of nobody":      func(c *tagChecker, _ uint32) { c.t.list.Post(5, ^uint64(0), 5) },
		"a slot of nobody waits":  func(c *tagChecker, h uint32) { c.t.slots[(h+1)&7].listed = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTagChecker(t, false, hook.TM{})
			h := c.add(1)
			require.NotPanics(t, c.t.checkNow)
			spoil(c, h)
			invarianttest.Violates(t, "tags", c.t.checkNow)
		})
	}
}

// TestCheckTransport: what a transport must not do, in builds with checks, is not an error but a
// Violation.
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
					c.t.cq.push(&verbs.WC{}, frees{}, false)
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
			invarianttest.Violates(t, v.rule, v.do(newTagChecker(t, true, hook.TM{})))
			require.NotPanics(t, v.do(newTagChecker(t, false, hook.TM{})), "anybody else gets an error, or what he asked for")
		})
	}
}

// TestCheckLargeList looks at everything now and then only.
func TestCheckLargeList(t *testing.T) {
	d, _, _, srq := tagRig(t, hook.TM{})
	require.Greater(t, len(srq.tm.slots), invariant.SmallList)
	srq.tm.nfree--
	ops := 0
	text := invarianttest.Violates(t, "tags", func() {
		for ; ops < 2*invariant.CheckEach; ops++ {
			srq.tm.checkNow()
		}
	})
	require.Contains(t, text, "counted as free")
	require.Equal(t, invariant.CheckEach-1, ops)
	require.NotNil(t, d.inv.tags[srq.tm])
}
