package flow

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
)

const exact = ^uint64(0)

// heldUp is a Sender without credit of which a send waits with each tag.
func heldUp(tags ...uint64) (*Sender[send], []*send) {
	s, sends := new(Sender[send]), make([]*send, len(tags))
	s.Init(1)
	for i, tag := range tags {
		sends[i] = &send{tag: tag}
		sends[i].number, _ = s.Push(tag, sends[i])
	}
	s.Hold()
	return s, sends
}

// released sends what the WANTs let go, and returns the tags.
func released(s *Sender[send]) (tags []uint64) {
	for !s.Empty() && s.Permitted() {
		first := s.First()
		s.Remove(first.number)
		s.Sent(first.tag, 1)
		tags = append(tags, first.tag)
	}
	return tags
}

// A message uses up the first WANT that it matches, as it goes to the first receive; a WANT for a
// slot in use is one for a later receive.
func TestOrderOfWants(t *testing.T) {
	anything, two := Want{Episode: 1, Slot: 0}, Want{Episode: 1, Slot: 1, Tag: 2, Mask: exact}
	for name, c := range map[string]struct {
		wants    []Want
		queue    []uint64
		released []uint64
	}{
		"first":            {[]Want{anything, two}, []uint64{2, 1, 2, 2}, []uint64{2, 1, 2}},
		"only the other":   {[]Want{two, anything}, []uint64{2, 1, 2, 2}, []uint64{2, 1}},
		"slot in use":      {[]Want{{Episode: 1, Slot: 0, Tag: 3, Mask: exact}, two, anything}, []uint64{2, 1, 2}, []uint64{2, 1}},
		"another episode":  {[]Want{{Episode: 3, Slot: All}}, []uint64{1}, nil},
		"the whole queue":  {[]Want{{Episode: 1, Slot: All}}, []uint64{1, 2, 3}, []uint64{1, 2, 3}},
		"credit":           {[]Want{{Episode: 1, Slot: None, Allowed: 1}}, []uint64{1, 2}, nil},
		"slot of nobody":   {[]Want{{Episode: 1, Slot: Slots}}, []uint64{1}, nil},
		"behind another":   {[]Want{two}, []uint64{1, 1, 2, 1}, []uint64{1, 1, 2}},
		"nothing like it":  {[]Want{two}, []uint64{1, 3}, nil},
		"several likewise": {[]Want{two, {Episode: 1, Slot: 2, Tag: 2, Mask: exact}}, []uint64{2, 2, 2}, []uint64{2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := heldUp(c.queue...)
			for _, w := range c.wants {
				s.Want(w)
			}
			require.Equal(t, c.released, released(s))
			require.Equal(t, len(c.queue)-len(c.released), s.Len())
		})
	}
}

// Credit that a message used while others waited is told by HELD; what ends in the queue uses
// nothing up.
func TestSenderCounts(t *testing.T) {
	s, sends := heldUp(1, 1, 1)
	s.Want(Want{Episode: 1, Slot: 3, Tag: 1, Mask: exact})
	s.Remove(sends[0].number)
	require.Equal(t, 1, s.Wants(), "a send that has ended was no message")
	s.Remove(sends[1].number)
	require.True(t, s.Sent(1, 10), "it went beyond credit")
	require.Zero(t, s.Wants())
	require.EqualValues(t, -10, s.Left())
	h, due := s.Due()
	require.True(t, due)
	require.Equal(t, Held{Episode: 1, Charged: 10}, h)
	s.Told()
	_, due = s.Due()
	require.False(t, due)
	s.Allow(30)
	s.Allow(20)
	require.True(t, s.Covers(20))
	require.False(t, s.Covers(21))
	s.Remove(sends[2].number)
	require.False(t, s.Sent(1, 20), "within credit")
	require.True(t, s.Drained())
	h, due = s.Due()
	require.True(t, due)
	require.Equal(t, Held{Episode: 2, Allowed: 30, Charged: 30}, h)
}

// told is the WANTs that are due, in their order.
func told(r *Receiver, settled bool) (all []Want) {
	for w, due := r.Due(settled); due; w, due = r.Due(settled) {
		r.Told(w)
		all = append(all, w)
	}
	return all
}

// WANTs are told in the order of their receives, whatever slots they have; not of receives that do
// not wait any more, nor while one is cancelling.
func TestDueInOrder(t *testing.T) {
	gone := map[matching.Handle]bool{0: true}
	m := NewMemory(credit.NewPool(0, 1, 1, 1), func(h matching.Handle) bool { return !gone[h] })
	r := m.Receiver(7)
	require.False(t, r.Post(1, 1, exact), "it is not held up")
	r.Held(Held{Episode: 1})
	require.Equal(t, []*Receiver{&r}, m.HeldUp())
	for h := range matching.Handle(Slots) {
		require.True(t, r.Post(1+h, uint64(h), exact))
	}
	require.Empty(t, told(&r, false))
	require.Len(t, told(&r, true), Slots)
	gone[6], gone[2] = true, true
	r.Post(101, 101, exact) // takes the earlier slot
	r.Probe(102, exact)
	gone[101] = true
	r.Post(103, 103, exact) // takes it again
	require.Equal(t, []Want{{Episode: 1, Slot: 5, Tag: 102, Mask: exact}, {Episode: 1, Slot: 1, Tag: 103, Mask: exact}}, told(&r, true))
	require.False(t, r.Probe(102, exact), "it has asked")
	require.True(t, r.Post(104, 104, exact), "a probe gives its slot")
	require.True(t, r.Post(105, 105, exact))
	require.True(t, r.All(), "no slot is left")
	require.False(t, r.Post(106, 106, exact))
	require.Equal(t, []Want{{Episode: 1, Slot: All}}, told(&r, true))
	require.True(t, r.Charge(5), "it was asked for")
	r.Held(Held{Episode: 2, Charged: 5})
	require.Empty(t, m.HeldUp())
	require.False(t, r.All())
	r.Held(Held{Episode: 3})
	require.False(t, r.Charge(5), "it said that it was within its credit")
}
