//go:build invariants

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
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
	_, err := verbstest.Poll(c.cq, wc[:])
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
	require.Empty(t, c.t.d.inv.tags[c.t].by)
}

// TestCheckCountsSound: H of TMO 5.1 by what the checks have seen taken and cut short, through all
// that counts and that does not.
func TestCheckCountsSound(t *testing.T) {
	for name, tm := range map[string]hook.TM{
		"plain":   {},
		"wrap":    {InitialCount: 65535},
		"dormant": {LiveGoDormant: true},
		"lossy":   {DropSync: 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTagChecker(t, true, tm)
			first := tm.InitialCount
			c.add(1)
			c.poll()
			c.message(2) // finds no buffer
			c.message(2)
			require.Equal(t, first, c.t.list.H())
			c.recv()
			c.message(2)
			require.Equal(t, first+1, c.t.list.H())
			c.recv()
			c.message(0)
			require.Equal(t, first+2, c.t.list.H())
			c.sync(uint32(first) + 2)
			c.sync(uint32(first) + 2) // lossy has lost one
			c.message(1)
			require.Equal(t, first+2, c.t.list.H(), "matched")
			c.recv()
			c.begins(3)
			require.Equal(t, first+3, c.t.list.H())
			require.NoError(t, c.q.Destroy())
			require.Equal(t, first+2, c.t.list.H(), "cut short")
		})
	}
}

// TestCheckCounts is what a device does that keeps the count wrong.
func TestCheckCounts(t *testing.T) {
	c := newTagChecker(t, false, hook.TM{})
	c.t.list.Unexpected() // a message that found no buffer was counted
	invarianttest.Violates(t, "tags", func() { c.message(1) })

	c = newTagChecker(t, false, hook.TM{})
	c.recv()
	c.message(1)
	c.t.list.Forget() // a message was not counted
	require.Contains(t, invarianttest.Violates(t, "tags", func() { c.add(1) }), "0 messages as unexpected and 0 of them as handled; 1 were, and 0")

	c = newTagChecker(t, false, hook.TM{})
	c.recv()
	c.begins(1)
	c.t.list.Forget() // before the message is cut short: once too often
	invarianttest.Violates(t, "tags", func() { c.sync(0) })
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
			require.Len(t, c.t.faults.later, 1, "its end is on its way")
			require.NotPanics(t, func() { end(c) })
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
