package flow

import (
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestExplore has a Sender and a Receiver do all that they can do with few messages, in every
// order. Messages come in their order, and beyond credit only where a WANT was told for them. Where
// nothing more can happen, no message is held up that a receive waits for, or that its credit
// covers, and all credit has come back: with a queue without bound the receives had got no more.
func TestExplore(t *testing.T) {
	for _, l := range []struct {
		limits
		ci bool
	}{
		{limits{sends: 3, receives: 2, slots: 2}, false},
		{limits{sends: 3, receives: 2, slots: 1, ends: 1}, false},
		{limits{sends: 3, receives: 1, slots: 1, cancels: 1, probes: 1}, false},
		{limits{sends: 3, receives: 3, slots: 2}, true},
		{limits{sends: 4, receives: 2, slots: 1, cancels: 1}, true},
		{limits{sends: 3, receives: 2, slots: 1, cancels: 1, probes: 1}, true},
	} {
		if l.ci && !testlevel.CI() {
			continue
		}
		t.Run(fmt.Sprintf("%+v", l.limits), func(t *testing.T) {
			e := explorer{t: t, limits: l.limits, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
			e.visit(newWorld(l.limits))
			t.Logf("%d states, %d ends", len(e.seen), e.ends)
			require.Positive(t, e.held, "nothing was held up")
		})
	}
}

type explorer struct {
	t      *testing.T
	limits limits
	seen   map[uint64]struct{}
	seed   maphash.Seed
	path   []step // to where it is
	state  []byte // scratch
	ends   int
	held   int // states with sends that are held up
}

// visit goes on from w, which it changes. Machines are not copied: to come back to a state it does
// the steps to it again.
func (e *explorer) visit(w *world) {
	if w.fault != "" {
		e.report(w.fault)
	}
	e.state = w.appendState(e.state[:0])
	key := maphash.Bytes(e.seed, e.state)
	if _, ok := e.seen[key]; ok {
		return
	}
	e.seen[key] = struct{}{}
	if w.s.HeldUp() {
		e.held++
	}
	steps := w.steps()
	for i, s := range steps {
		if i != 0 {
			w = newWorld(e.limits)
			for _, s := range e.path {
				s.do(w, s.which)
			}
		}
		s.do(w, s.which)
		e.path = append(e.path, s)
		e.visit(w)
		e.path = e.path[:len(e.path)-1]
	}
	if len(steps) == 0 {
		if w.checkEnd(); w.fault != "" {
			e.report(w.fault)
		}
		e.ends++
	}
}

func (e *explorer) report(fault string) {
	var b strings.Builder
	for _, s := range e.path {
		fmt.Fprintf(&b, " %s %d,", s.name, s.which)
	}
	e.t.Fatalf("%s, after%s", fault, strings.TrimSuffix(b.String(), ","))
}

// checkEnd checks a world where nothing more can happen.
func (w *world) checkEnd() {
	for _, r := range w.receives {
		for m := range w.s.Sends() {
			if r.state == waiting && matches(r.tag, r.mask, m.tag) {
				w.fail("message %d is held up although a receive waits for it", m.number)
			}
		}
	}
	for _, v := range w.r.wants {
		if v.probe && w.s.queue.has(v.tag, v.mask) {
			w.fail("a message with tag %d is held up although a probe has asked for it", v.tag)
		}
	}
	charged, consumed, window := w.r.Usage()
	switch granted := w.r.Granted(); {
	case !w.s.Empty() && w.s.Charged() < granted:
		w.fail("a message is held up that its credit covers")
	case w.s.Charged() != charged:
		w.fail("the sender has charged %d, the receiver %d", w.s.Charged(), charged)
	case max(w.s.allowed, w.landed) != granted:
		w.fail("%d is granted, and the sender knows of %d", granted, max(w.s.allowed, w.landed))
	case granted != consumed+window:
		w.fail("%d is granted, %d was consumed with a window of %d", granted, consumed, window)
	case w.s.HeldUp() != w.r.HeldUp() || w.s.HeldUp() == w.s.Empty():
		w.fail("the sender is held up: %v there, %v here, with %d sends", w.s.HeldUp(), w.r.HeldUp(), w.s.Len())
	}
}

// appendState appends what tells a world from others that can go on in other ways. All numbers are
// small.
func (w *world) appendState(b []byte) []byte {
	add := func(numbers ...int) {
		for _, n := range numbers {
			b = append(b, byte(n))
		}
	}
	message := func(m *message) { add(m.number, int(m.tag), bit(m.wanted)) }
	l, s, r := &w.left, &w.s, &w.r
	add(l.sends, l.receives, l.cancels, l.ends, l.probes, w.named, bit(w.met))
	add(int(s.charged), int(s.allowed), int(s.episode), int(s.told), bit(s.all), bit(w.sDirty), len(s.wants), s.Len(), len(w.toReceiver))
	for _, v := range s.wants {
		add(int(v.Slot), int(v.Tag), int(v.Mask))
	}
	for m := range s.Sends() {
		message(m)
	}
	for _, p := range w.toReceiver {
		if p.m != nil {
			message(p.m)
		} else {
			add(255, int(p.held.Episode), int(p.held.Allowed), int(p.held.Charged))
		}
	}
	add(int(w.stored), int(w.landed), len(w.toSender), len(w.receives), len(w.unexpected), len(r.wants))
	for _, v := range w.toSender {
		add(int(v.Episode), int(v.Slot), int(v.Allowed), int(v.Tag), int(v.Mask))
	}
	for _, v := range w.receives {
		add(int(v.tag), int(v.mask), int(v.state), bit(v.told))
	}
	for _, m := range w.unexpected {
		message(m)
	}
	for _, v := range r.wants {
		earlier := 0
		for _, o := range r.wants {
			earlier += bit(o.order < v.order)
		}
		add(int(v.handle), int(v.tag), int(v.mask), bit(v.due), bit(v.probe), earlier)
	}
	charged, consumed, window := r.Usage()
	add(int(charged), int(consumed), int(window), int(r.Granted()), int(r.episode), bit(r.all), bit(r.allDue), bit(r.credit))
	add(bit(w.rDirty), w.received, bit(w.excess), w.pointless)
	return b
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
