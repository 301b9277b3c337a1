package taglist

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// Quirks are what tests change of a list: behaviour that TMO leaves open, and checks of the
// program.
type Quirks struct {
	SyncReq       bool   // SYNC_REQ as the mlx5 driver computes it (TMO 4.6); else: H and S differ
	LiveGoDormant bool   // an unexpected message makes all entries dormant, not only later ones
	InitialCount  uint16 // H and S at the beginning: near 65535 to see them wrap

	// Strict, if not nil, is told of a program that breaks V11, V13, V14 or V19 (TMO 7.1). A post
	// that breaks one fails with EINVAL; after one that breaks V13 the completion says GENERAL_ERR.
	Strict func(rule, what string)
}

// quirks are Quirks in use.
type quirks struct {
	Quirks
	driver mlx5
}

// use takes the quirks of a new list.
func (l *List) use(q *Quirks) {
	if q == nil {
		return
	}
	first := int64(q.InitialCount)
	l.h, l.handled, l.quiet = q.InitialCount, q.InitialCount, 0
	l.quirks = &quirks{*q, mlx5{in: first, last: first, out: first, adds: make([]int64, len(l.slots))}}
}

func (l *List) strict() bool { return l.quirks != nil && l.quirks.Strict != nil }

// breach tells of a program that breaks a rule, and returns the error of a post that does. It is
// not inlined, so that posting stays small.
//
//go:noinline
func (l *List) breach(rule, what string) error {
	l.quirks.Strict(rule, what)
	return fail(syscall.EINVAL, rule+": "+what)
}

// usedAgain marks the end of a receive whose slot is in use again (TMO 3.4).
func (l *List) usedAgain(wc *verbs.WC, hnd uint32) {
	_ = l.breach("V13", fmt.Sprintf("a receive's end, wr_id %#x, comes for handle %#x, which is used again", wc.WRID, hnd))
	wc.Status = verbs.WCGeneralErr
}

// mlx5 computes SYNC_REQ as the mlx5 driver does. Its counts do not wrap at 16 bits as H and S do,
// which makes it wrong (TMO 4.6).
type mlx5 struct {
	in   int64   // messages found unexpected
	last int64   // unexpected_cnt of the last operation that had one
	out  int64   // that of the last ADD with TM_SYNC
	adds []int64 // by slot: last at the ADD of its entry
}

// executed takes an operation that concerns that slot, and reports whether its completion has
// SYNC_REQ.
func (m *mlx5) executed(o *Op, slot uint32, h uint16) bool {
	if o.Syncs() {
		m.last = int64(o.count)
	}
	base := m.last
	switch {
	case o.Opcode == verbs.WRTagAdd:
		m.adds[slot] = m.last
		if o.Syncs() {
			m.out = m.last
		}
	case o.Opcode == verbs.WRTagDel && !o.stale:
		base = m.adds[slot]
	}
	return int64(h) != base
}

// unexpected reports whether the completion of the newest unexpected message has SYNC_REQ.
func (m *mlx5) unexpected() bool { return m.in-m.out > syncReqFrom }
