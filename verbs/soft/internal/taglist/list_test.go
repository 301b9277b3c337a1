package taglist

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tagmatch/tagmatch/verbs"
)

// naive is a list by the letter of TMO 5.2 and 3.4: entries in a slice, searched from the front;
// free slots in a slice; operations that are outstanding counted one by one.
type naive struct {
	list     []naiveEntry
	h, s     uint16
	free     []uint32          // slots
	gen      map[uint32]uint32 // of slots
	owed     map[uint32]int    // completions by handle, until its slot is free
	ops      []bool            // operations of the command queue, oldest first: signalled?
	maxOps   int
	slotBits uint
	polls    []completion // not polled yet
}

type naiveEntry struct {
	tag, mask uint64
	hnd       uint32
	wrid      uint64
	live      bool
}

type completion struct {
	wc  verbs.WC
	due Due
}

func newNaive(tags, ops int, first uint16) *naive {
	m := &naive{h: first, s: first, gen: map[uint32]uint32{}, owed: map[uint32]int{}, maxOps: ops}
	for i := range tags + 1 {
		m.free = append(m.free, uint32(i))
		m.gen[uint32(i)] = 1
	}
	for 1<<m.slotBits <= tags {
		m.slotBits++
	}
	return m
}

func (m *naive) slot(hnd uint32) uint32 { return hnd & (1<<m.slotBits - 1) }

// pay is n completions of a handle less to be polled.
func (m *naive) pay(hnd uint32, n int) {
	if m.owed[hnd] == 0 {
		return
	}
	if m.owed[hnd] -= n; m.owed[hnd] <= 0 {
		delete(m.owed, hnd)
		m.gen[m.slot(hnd)]++
		m.free = append(m.free, m.slot(hnd))
	}
}

// post returns the errno of the post, and the handle of an ADD.
func (m *naive) post(wr *verbs.OpsWR) (hnd uint32, errno syscall.Errno) {
	signaled := wr.Flags&verbs.OpsSignaled != 0
	if len(m.ops) == m.maxOps {
		return 0, syscall.ENOMEM
	}
	switch wr.Opcode {
	case verbs.WRTagAdd:
		if len(m.free) == 1 {
			return 0, syscall.ENOMEM
		}
		slot := m.free[0]
		m.free = m.free[1:]
		hnd = m.gen[slot]<<m.slotBits | slot
		m.owed[hnd] = 1
		if signaled {
			m.owed[hnd]++
		}
	case verbs.WRTagDel:
		switch {
		case m.owed[wr.Handle] == 0 && !signaled:
			return 0, syscall.EINVAL
		case m.owed[wr.Handle] == 0:
		case signaled:
			m.owed[wr.Handle]++
		default:
			m.pay(wr.Handle, 1)
		}
	}
	m.ops = append(m.ops, signaled)
	return hnd, 0
}

func (m *naive) find(hnd uint32) int {
	return slices.IndexFunc(m.list, func(e naiveEntry) bool { return e.hnd == hnd })
}

// execute returns the status of the operation, and whether its completion has SYNC_REQ.
func (m *naive) execute(wr *verbs.OpsWR, lost bool) (status verbs.WCStatus, sync bool) {
	switch wr.Opcode {
	case verbs.WRTagAdd:
		m.list = append(m.list, naiveEntry{tag: wr.Add.Tag, mask: wr.Add.Mask, hnd: wr.Handle, wrid: wr.Add.RecvWRID})
	case verbs.WRTagDel:
		if i := m.find(wr.Handle); i >= 0 {
			m.list = slices.Delete(m.list, i, i+1)
		} else {
			status = verbs.WCTMErr
		}
	}
	if wr.Flags&verbs.OpsTMSync != 0 && !lost {
		m.s = uint16(wr.UnexpectedCnt)
	}
	if m.s == m.h {
		for i := range m.list {
			m.list[i].live = true
		}
	}
	return status, m.s != m.h && wr.Opcode != verbs.WRTagSync
}

// match takes the first live entry that matches, or returns nil and counts the message.
func (m *naive) match(tag uint64) *naiveEntry {
	i := slices.IndexFunc(m.list, func(e naiveEntry) bool { return e.live && tag&e.mask == e.tag })
	if i < 0 {
		m.h++
		return nil
	}
	e := m.list[i]
	m.list = slices.Delete(m.list, i, i+1)
	return &e
}

// posted is an operation that has not taken effect.
type posted struct {
	wr verbs.OpsWR
	o  Op
}

type machine struct {
	l     List
	m     *naive
	queue []posted
	seen  []uint32 // handles that were ever given out
	ids   uint64
	quirk Quirks
}

var (
	someTag  = rapid.Uint64Range(0, 3)
	someMask = rapid.SampledFrom([]uint64{^uint64(0), 1, 2, 0})
)

// op posts an operation. It takes effect by Execute, later.
func (s *machine) op(t *rapid.T, wr verbs.OpsWR) {
	if rapid.Bool().Draw(t, "signaled") {
		wr.Flags |= verbs.OpsSignaled
	}
	switch rapid.IntRange(0, 3).Draw(t, "sync") {
	case 0:
		wr.UnexpectedCnt = uint32(s.m.h) + uint32(rapid.IntRange(0, 1).Draw(t, "wrapped"))<<16
		wr.Flags |= verbs.OpsTMSync
	case 1:
		wr.UnexpectedCnt = uint32(s.m.h) - uint32(rapid.IntRange(1, 3).Draw(t, "behind"))
		wr.Flags |= verbs.OpsTMSync
	}
	s.ids++
	wr.WRID = s.ids
	hnd, errno := s.m.post(&wr)
	var o Op
	err := s.l.Post(&wr, &o)
	if errno != 0 {
		require.ErrorIs(t, err, errno)
		return
	}
	require.NoError(t, err)
	if wr.Opcode == verbs.WRTagAdd {
		require.Equal(t, hnd, wr.Handle)
		s.seen = append(s.seen, hnd)
	}
	o.Lost = rapid.IntRange(0, 9).Draw(t, "lost") == 0
	s.queue = append(s.queue, posted{wr, o})
}

func (s *machine) Add(t *rapid.T) {
	s.ids++
	mask := someMask.Draw(t, "mask")
	tag := someTag.Draw(t, "tag")
	if rapid.IntRange(0, 9).Draw(t, "never") != 0 { // else nothing may match it
		tag &= mask
	}
	s.op(t, verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: verbs.TagAdd{RecvWRID: s.ids, Tag: tag, Mask: mask}})
}

func (s *machine) Sync(t *rapid.T) { s.op(t, verbs.OpsWR{Opcode: verbs.WRTagSync}) }

// Del is signalled, of any handle, or unsignalled, of a dormant entry that has taken effect, or of
// a handle that is out of use: other programs break V11.
func (s *machine) Del(t *rapid.T) {
	if len(s.seen) == 0 {
		t.Skip()
	}
	hnd := s.seen[max(0, len(s.seen)-1-rapid.IntRange(0, 9).Draw(t, "back"))]
	i := s.m.find(hnd)
	wr := verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: hnd}
	if i >= 0 && !s.m.list[i].live && s.m.owed[hnd] == 1 && len(s.queue) == 0 {
		s.op(t, wr)
		s.run(t) // before a message can wake it
		return
	}
	if s.m.owed[hnd] > 0 {
		wr.Flags = verbs.OpsSignaled
	}
	s.op(t, wr)
}

// Execute has the oldest operation take effect.
func (s *machine) Execute(t *rapid.T) {
	if len(s.queue) == 0 {
		t.Skip()
	}
	s.run(t)
}

func (s *machine) run(t *rapid.T) {
	if len(s.queue) == 0 {
		return
	}
	p := s.queue[0]
	s.queue = s.queue[1:]
	op := map[verbs.OpsOpcode]verbs.WCOpcode{verbs.WRTagAdd: verbs.WCTMAdd, verbs.WRTagDel: verbs.WCTMDel, verbs.WRTagSync: verbs.WCTMSync}
	status, sync := s.m.execute(&p.wr, p.o.Lost)
	var wc verbs.WC
	due, signaled := s.l.Execute(&p.o, &wc)
	require.Equal(t, p.wr.Flags&verbs.OpsSignaled != 0, signaled)
	want := verbs.WC{WRID: p.wr.WRID, Opcode: op[p.wr.Opcode], Status: status}
	if sync && signaled {
		want.Flags = verbs.WCFlagTMSyncReq
	}
	require.Equal(t, want, wc)
	if signaled {
		s.m.polls = append(s.m.polls, completion{wc, due})
	}
}

// Message arrives, and is received at once.
func (s *machine) Message(t *rapid.T) {
	defer s.l.CheckArrival()()
	tag := someTag.Draw(t, "tag")
	want := s.m.match(tag)
	e := s.l.Match(tag)
	require.Equal(t, want != nil, e != nil)
	if e == nil {
		flags := verbs.WCFlags(0)
		if s.m.h-s.m.s > syncReqFrom {
			flags = verbs.WCFlagTMSyncReq
		}
		require.Equal(t, flags, s.l.Unexpected())
		s.l.CheckCount(1)
		if s.quirk.LiveGoDormant {
			for i := range s.m.list {
				s.m.list[i].live = false
			}
		}
		return
	}
	require.Equal(t, Entry{Handle: want.hnd, WRID: want.wrid}, *e)
	s.l.CheckEnd(e.WRID, e.Handle)
	s.m.polls = append(s.m.polls, completion{verbs.WC{Opcode: verbs.WCTMRecv, WRID: e.WRID}, Due{Handle: e.Handle}})
}

// CutShort is an unexpected message that will not be reported.
func (s *machine) CutShort(*rapid.T) {
	s.m.h++
	s.l.Unexpected()
	s.m.h--
	s.l.Forget()
	if s.quirk.LiveGoDormant {
		for i := range s.m.list {
			s.m.list[i].live = false
		}
	}
}

// Poll takes the oldest completion.
func (s *machine) Poll(t *rapid.T) {
	if len(s.m.polls) == 0 {
		t.Skip()
	}
	c := s.m.polls[0]
	s.m.polls = s.m.polls[1:]
	s.l.Polled(&c.wc, c.due.Handle, c.due.Upto)
	if c.wc.Opcode != verbs.WCTMRecv { // frees the operations up to the oldest signalled one, its own
		s.m.ops = s.m.ops[slices.Index(s.m.ops, true)+1:]
	}
	switch {
	case c.wc.Opcode == verbs.WCTMSync || c.due.Handle == NoHandle:
	case c.wc.Opcode == verbs.WCTMDel && c.wc.Status == verbs.WCSuccess:
		s.m.pay(c.due.Handle, 2)
	default:
		s.m.pay(c.due.Handle, 1)
	}
}

// Check is after each step.
func (s *machine) Check(t *rapid.T) {
	can := 0
	for _, e := range s.m.list {
		if e.tag&^e.mask == 0 {
			can++
		}
	}
	require.Equal(t, can, s.l.Len())
	require.Equal(t, s.m.h, s.l.H())
}

// TestListAgainstModel plays any program that keeps to the rules against the naive list, with
// operations that take effect late and completions that are polled late.
func TestListAgainstModel(t *testing.T) {
	for _, q := range []Quirks{{}, {InitialCount: 65534}, {LiveGoDormant: true}} {
		t.Run(fmt.Sprintf("from %d, dormant %v", q.InitialCount, q.LiveGoDormant), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				tags, ops := rapid.IntRange(1, 9).Draw(t, "tags"), rapid.IntRange(1, 12).Draw(t, "ops")
				s := &machine{m: newNaive(tags, ops, q.InitialCount), quirk: q}
				cfg := Config{Tags: uint32(tags), Ops: uint32(ops)}
				if q.InitialCount != 0 || q.LiveGoDormant {
					cfg.Quirks = &q
				}
				s.l.Init(cfg)
				t.Repeat(rapid.StateMachineActions(s))
			})
		})
	}
}
