package verbstest

import (
	"math/rand/v2"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// modelEntry is an entry of the model's list.
type modelEntry struct {
	id, tag, mask uint64
	hnd           uint32
	live          bool
}

// tagModel is the model of TMO 5.2.
type tagModel struct {
	list []modelEntry
	h, s uint16
	dorm bool
}

func (m *tagModel) sync(count uint32) {
	m.s = uint16(count)
	for i := range m.list {
		m.list[i].live = m.list[i].live || m.s == m.h
	}
}

func (m *tagModel) arrive(tag uint64) (modelEntry, bool) {
	for i, e := range m.list {
		if e.live && tag&e.mask == e.tag {
			m.list = append(m.list[:i:i], m.list[i+1:]...)
			return e, true
		}
	}
	m.h++
	for i := range m.list {
		m.list[i].live = m.list[i].live && !m.dorm
	}
	return modelEntry{}, false
}

// testTagModel: random operations and messages, one at a time, against the model.
func testTagModel(t *testing.T, open Opener, opts TagOptions) {
	const tags = 7
	for seed := range uint64(3) {
		r := newSmallRig(t, open, opts, tags, 64)
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &tagModel{h: uint16(opts.InitialCount), s: uint16(opts.InitialCount), dorm: opts.Dormant}
		r.untagged(untaggedDepth / 2)
		masks := []uint64{exact, exact, 0, 3, 1 << 40}
		for i := range uint64(400) {
			switch k := rng.IntN(10); {
			case k < 4 && len(m.list) < tags:
				mask := masks[rng.IntN(len(masks))]
				e := modelEntry{id: i, tag: (uint64(rng.IntN(4)) | 1<<40) & mask, mask: mask}
				e.hnd = r.add(e.id, e.tag, e.mask, r.bbuf[:64])
				m.list = append(m.list, e)
				m.sync(r.count)
			case k < 8:
				tag := uint64(rng.IntN(4)) | 1<<40
				msg := r.eager(tag, uint32(i), rng.IntN(64))
				if e, ok := m.arrive(tag); ok {
					r.matched(e.id, tag, uint32(i), msg[16:], r.bbuf)
				} else {
					r.unexpected(msg)
					r.untagged(1)
				}
				r.sent()
			case k < 9 && len(m.list) > 0:
				j := rng.IntN(len(m.list))
				e := m.list[j]
				m.list = append(m.list[:j:j], m.list[j+1:]...)
				r.del(e.hnd, verbs.WCSuccess)
				m.sync(r.count)
			default:
				// Sometimes one too few.
				r.count = opts.InitialCount + uint32(r.used) - uint32(rng.IntN(2))
				r.count = max(r.count, opts.InitialCount)
				r.sync()
				m.sync(r.count)
			}
		}
	}
}
