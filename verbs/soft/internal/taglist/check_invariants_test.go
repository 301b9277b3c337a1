//go:build invariants

package taglist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs"
)

// checker is a list of 8 slots that a test spoils.
type checker struct {
	*testing.T
	l    List
	owed []owed // completions that were not polled
}

type owed struct {
	wc  verbs.WC
	due Due
}

func newChecker(t *testing.T, q *Quirks) *checker {
	c := &checker{T: t}
	c.l.Init(Config{Tags: 7, Ops: 4, Quirks: q})
	return c
}

// op posts and executes an operation, and returns its handle.
func (c *checker) op(wr verbs.OpsWR) uint32 {
	c.Helper()
	var o Op
	require.NoError(c, c.l.Post(&wr, &o))
	var wc verbs.WC
	if due, ok := c.l.Execute(&o, &wc); ok {
		c.owed = append(c.owed, owed{wc, due})
	}
	return wr.Handle
}

func (c *checker) add(tag uint64) uint32 {
	c.Helper()
	return c.op(verbs.OpsWR{Flags: verbs.OpsSignaled, Add: verbs.TagAdd{RecvWRID: tag, Tag: tag, Mask: ^uint64(0)}})
}

func (c *checker) sync(count uint32) {
	c.Helper()
	c.op(verbs.OpsWR{Opcode: verbs.WRTagSync, Flags: verbs.OpsSignaled | verbs.OpsTMSync, UnexpectedCnt: count})
	c.poll()
}

// message lets one arrive; what it matches is received.
func (c *checker) message(tag uint64) {
	defer c.l.CheckArrival()()
	if e := c.l.Match(tag); e != nil {
		c.l.CheckEnd(e.WRID, e.Handle)
		c.owed = append(c.owed, owed{verbs.WC{Opcode: verbs.WCTMRecv, WRID: e.WRID}, Due{Handle: e.Handle}})
		return
	}
	c.l.Unexpected()
	c.l.CheckCount(1)
}

func (c *checker) poll() {
	for _, o := range c.owed {
		c.l.Polled(&o.wc, o.due.Handle, o.due.Upto)
	}
	c.owed = nil
}

func (c *checker) now() { c.l.check.now(&c.l) }

// TestCheckSound goes the way of a few receives without a violation, so that those below mean
// something.
func TestCheckSound(t *testing.T) {
	c := newChecker(t, nil)
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
	require.Empty(t, c.l.check.recs)
}

func TestCheckTwoAtOnce(t *testing.T) {
	c := newChecker(t, nil)
	c.add(1)
	c.l.check.busy = "a list operation"
	require.Contains(t, invarianttest.Violates(t, "V10", func() { c.message(1) }), "an arrival begins inside a list operation")
}

func TestCheckActivationFirst(t *testing.T) {
	c := newChecker(t, nil)
	c.l.check.begin(&Op{Opcode: verbs.WRTagDel, entry: Entry{Handle: c.add(1)}})
	invarianttest.Violates(t, "V10", c.l.activate)
}

// TestCheckCounts is what a list does that keeps one of the counts wrong.
func TestCheckCounts(t *testing.T) {
	c := newChecker(t, nil)
	c.l.h++
	invarianttest.Violates(t, "tags", func() { c.message(1) })

	c = newChecker(t, nil)
	c.message(1)
	c.l.handled++
	require.Contains(t, invarianttest.Violates(t, "tags", func() { c.add(1) }), "1 messages as unexpected and 1 of them as handled; 1 were, and 0")
}

// TestCheckActivates: entries are live when the counts are equal, and only then; what the list
// takes for its limit does not say so.
func TestCheckActivates(t *testing.T) {
	c := newChecker(t, nil)
	c.message(1)
	h := c.add(1)
	live := func() bool { return c.l.check.recs[h].live }
	require.False(t, live())
	limit := c.l.limit
	c.l.limit = c.l.entries.NextSeq() // live all the same
	invarianttest.Violates(t, "tags", c.now)
	c.l.limit = limit
	c.sync(1)
	require.True(t, live())
	c.l.limit = limit // never became live
	invarianttest.Violates(t, "tags", c.now)
	invarianttest.Violates(t, "V2", func() { c.message(1) })
}

// TestCheckOldestLive: a message goes to the oldest live entry that matches.
func TestCheckOldestLive(t *testing.T) {
	c := newChecker(t, nil)
	one, two := c.add(1), c.add(1)
	invarianttest.Violates(t, "V2", func() { c.l.check.matched(1, true, two) })
	invarianttest.Violates(t, "V2", func() { c.l.check.matched(1, false, 0) })
	invarianttest.Violates(t, "V2", func() { c.l.check.matched(2, true, one) })
	c.l.check.asleep()
	invarianttest.Violates(t, "V2", func() { c.l.check.matched(1, true, one) })
}

// TestCheckReceiveEndsOnce is V12.
func TestCheckReceiveEndsOnce(t *testing.T) {
	c := newChecker(t, nil)
	h := c.add(1)
	invarianttest.Violates(t, "V12", func() { c.l.CheckEnd(1, h) }) // without a match
	c.message(1)
	invarianttest.Violates(t, "V12", func() { c.l.CheckEnd(1, h) })   // twice
	invarianttest.Violates(t, "V12", func() { c.l.CheckEnd(1, h+8) }) // of nothing
}

// TestCheckHandles is V13 and V14 by what goes wrong in the list.
func TestCheckHandles(t *testing.T) {
	c := newChecker(t, nil)
	h := c.add(1)
	invarianttest.Violates(t, "V13", func() { c.l.release(h, 2) }) // nothing was polled

	c = newChecker(t, nil)
	c.add(1)
	c.l.free[c.l.head], c.l.free[c.l.head+1] = c.l.free[c.l.head+1], c.l.free[c.l.head]
	invarianttest.Violates(t, "V13", func() { c.add(2) }) // out of turn

	c = newChecker(t, nil)
	h = c.add(1)
	c.l.slots[h&7].expectCQE++
	invarianttest.Violates(t, "V13", c.now)

	c = newChecker(t, nil)
	for tag := range uint64(7) {
		c.add(tag)
		c.poll()
	}
	c.l.nfree++
	invarianttest.Violates(t, "V14", func() { c.add(9) }) // the slot that stays free

	c = newChecker(t, nil)
	c.add(1)
	c.l.head = 0 // the slot is free and its generation has not moved on
	c.l.slots[0].expectCQE = 0
	require.Contains(t, invarianttest.Violates(t, "V13", func() { c.add(2) }), "given out while completions")
}

// TestCheckAccounts is what the accounts of an entry, and of the operations, have not seen coming:
// a second time, or without a cause.
func TestCheckAccounts(t *testing.T) {
	add, del := verbs.WC{Opcode: verbs.WCTMAdd}, verbs.WC{Opcode: verbs.WCTMDel}
	for name, v := range map[string]struct {
		rule, text string
		do         func(l *List, c *checks, h uint32)
	}{
		"inserted":             {"once", "takes effect twice", func(_ *List, c *checks, h uint32) { c.inserted(h) }},
		"inserted unknown":     {"once", "takes effect twice", func(_ *List, c *checks, h uint32) { c.inserted(h + 8) }},
		"added":                {"once", "the ADD of", func(_ *List, c *checks, h uint32) { c.polled(&add, h); c.polled(&add, h) }},
		"deleted, never asked": {"once", "a DEL of", func(_ *List, c *checks, h uint32) { c.polled(&del, h) }},
		"freed unknown":        {"once", "is freed twice", func(l *List, c *checks, h uint32) { c.freed(l, h+8) }},
		"freed": {"once", "is freed twice", func(l *List, c *checks, h uint32) {
			c.recs[h].misused = true // what it owes is another rule's
			c.freed(l, h)
			c.freed(l, h)
		}},
		"removed, the DEL says no": {"tags", "has the outcome false", func(_ *List, c *checks, h uint32) { c.removed(h, false) }},
		"removed unknown":          {"tags", "has the outcome true", func(_ *List, c *checks, h uint32) { c.removed(h+8, true) }},
		"too many operations":      {"V14", "are outstanding", func(l *List, c *checks, _ uint32) { l.posted = l.tail + l.maxOps + 1; c.postedOp(l) }},
		"signalled, not posted":    {"order", "the newest signalled", func(l *List, c *checks, _ uint32) { l.signaled = l.posted + 1; c.postedOp(l) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecker(t, nil)
			h := c.add(1)
			require.Contains(t, invarianttest.Violates(t, v.rule, func() { v.do(&c.l, &c.l.check, h) }), v.text)
		})
	}
}

// TestCheckBooks: the parts of a list contradict each other.
func TestCheckBooks(t *testing.T) {
	for name, spoil := range map[string]func(l *List, h uint32){
		"a free slot too many":    func(l *List, _ uint32) { l.nfree-- },
		"the ring of free slots":  func(l *List, _ uint32) { l.free[l.head] ^= 1 },
		"a slot is not listed":    func(l *List, h uint32) { l.slots[h&7].listed = false },
		"an entry left the list":  func(l *List, h uint32) { l.entries.Remove(l.slots[h&7].stored) },
		"a live entry is dormant": func(l *List, _ uint32) { l.limit = 0 },
		"nothing owed in use":     func(l *List, h uint32) { l.slots[h&7].expectCQE = 0 },
		"an entry of nobody":      func(l *List, _ uint32) { l.entries.Post(5, ^uint64(0), 5) },
		"a slot of nobody waits":  func(l *List, h uint32) { l.slots[(h+1)&7].listed = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecker(t, nil)
			h := c.add(1)
			require.NotPanics(t, c.now)
			spoil(&c.l, h)
			invarianttest.Violates(t, "tags", c.now)
		})
	}
}

// large is a list that is too large to be looked through each time, and wrong.
func large() *List {
	l := new(List)
	l.Init(Config{Tags: 2 * invariant.SmallList, Ops: 1})
	l.nfree--
	return l
}

// TestCheckLargeList looks at everything now and then only.
func TestCheckLargeList(t *testing.T) {
	l, ops := large(), 0
	text := invarianttest.Violates(t, "tags", func() {
		for ; ops < 2*invariant.CheckEach; ops++ {
			l.check.now(l)
		}
	})
	require.Contains(t, text, "counted as free")
	require.Equal(t, invariant.CheckEach-1, ops)
}

// TestCheckLargeListThoroughly looks at everything at once where that is wanted.
func TestCheckLargeListThoroughly(t *testing.T) {
	l := large()
	require.NotPanics(t, func() { l.check.now(l) })
	invarianttest.Thorough(t)
	invarianttest.Violates(t, "tags", func() { l.check.now(l) })
}
