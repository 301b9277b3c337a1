package verbstest

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// testTagDel: rows 15, 16 and 18: before a message, after one, and of a dormant entry.
func testTagDel(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	h := r.add(1, 5, exact, r.bbuf)
	r.del(h, verbs.WCSuccess)
	m := r.eager(5, 0, 8)
	r.unexpected(0, m)
	r.sent()
	r.count++
	h = r.add(2, 5, exact, r.bbuf)
	m = r.eager(5, 0, 8)
	r.sent()
	r.matched(2, 5, 0, m[16:], r.bbuf)
	r.del(h, verbs.WCTMErr)
	r.miss(1, 9)
	r.count-- // as the device knows it
	h = r.add(3, 5, exact, r.bbuf)
	r.miss(2, 5) // it is dormant
	r.count--
	r.del(h, verbs.WCSuccess)
	r.count += 2
	r.sync() // would make it live
	r.miss(3, 5)
	r.b.none()
}

// testTagDelStale: row 19: a handle that is out of use removes nothing.
func testTagDelStale(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 1, 64)
	old := r.add(1, 5, exact, r.bbuf)
	r.del(old, verbs.WCSuccess)
	for i := range uint64(4) { // the slot comes into use again
		h := r.add(2+i, 5, exact, r.bbuf)
		for _, stale := range []uint32{old, h + 1, h ^ 1<<31, ^uint32(0)} {
			if stale == h {
				continue
			}
			wr := verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: stale, WRID: 8, Flags: verbs.OpsSignaled}
			if _, err := r.srq.PostSRQOps(&wr); err != nil {
				r.errno(err, syscall.EINVAL)
			} else {
				r.b.want(8, verbs.WCTMErr)
			}
			wr.Flags = 0
			if _, err := r.srq.PostSRQOps(&wr); err != nil {
				r.errno(err, syscall.EINVAL)
			}
		}
		m := r.eager(5, 0, 8)
		r.matched(2+i, 5, 0, m[16:], r.bbuf)
		r.sent()
	}
}

// testTagListFull: row 23: exactly max_num_tags entries; a slot comes back when its last completion was polled.
func testTagListFull(t *testing.T, open Opener, opts TagOptions) {
	for _, tags := range []uint32{1, 2, 7} {
		r := newTagRig(t, open, opts, tags, 64)
		var hs []uint32
		for i := range uint64(tags) {
			hs = append(hs, r.add(i, i, exact, r.bbuf))
		}
		full := func(want bool) {
			t.Helper()
			wr := &verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 9, Add: r.tagAdd(100, 100, exact, r.bbuf)}
			bad, err := r.srq.PostSRQOps(wr)
			if !want {
				r.ok(err)
				return
			}
			r.errno(err, syscall.ENOMEM)
			if bad != wr {
				t.Fatal("wrong failing request")
			}
		}
		full(true)
		m := r.eager(0, 0, 3)
		r.sent()
		r.matched(0, 0, 0, m[16:], r.bbuf)
		full(false) // unsignalled: live at once
		full(true)
		if tags > 1 {
			r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: hs[1], WRID: 3, Flags: verbs.OpsSignaled})
			full(true) // not polled yet
			r.b.want(3, verbs.WCSuccess)
			full(false)
			full(true)
		}
	}
}

// testTagOpsFull: rows 25 and 26: slots of the command queue come back with the completion of a later signalled operation.
func testTagOpsFull(t *testing.T, open Opener, opts TagOptions) {
	const ops = 8
	r := newTagRig(t, open, opts, 15, ops)
	post := func(flags verbs.OpsFlags) error {
		_, err := r.srq.PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagSync, WRID: 1, Flags: flags})
		return err
	}
	for range 3 {
		for range ops - 1 {
			r.ok(post(0))
		}
		r.ok(post(verbs.OpsSignaled))
		r.errno(post(0), syscall.ENOMEM)
		r.errno(post(verbs.OpsSignaled), syscall.ENOMEM)
		r.b.want(1, verbs.WCSuccess)
	}
	for range ops { // all of them signalled: each completion brings one back
		r.ok(post(verbs.OpsSignaled))
	}
	r.errno(post(0), syscall.ENOMEM)
	for range ops {
		r.b.want(1, verbs.WCSuccess)
	}
	for range ops - 1 {
		r.ok(post(0))
	}
	if err := post(0); err != nil { // a strict device sees it coming
		r.errno(err, syscall.EINVAL)
		r.ok(post(verbs.OpsSignaled))
		return
	}
	r.settle()
	r.errno(post(verbs.OpsSignaled), syscall.ENOMEM) // stuck for ever: the host's own fault
}

// testTagChain: row 27: what precedes the failing request takes effect.
func testTagChain(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	for name, spoil := range map[string]func(wr *verbs.OpsWR){
		"opcode": func(wr *verbs.OpsWR) { wr.Opcode = 7 },
		"flags":  func(wr *verbs.OpsWR) { wr.Flags = 1 << 9 },
		"SGEs": func(wr *verbs.OpsWR) {
			wr.Add.SGList = make([]verbs.SGE, r.b.dev.Attr().TM.MaxSGE+1)
		},
		"handle": func(wr *verbs.OpsWR) { wr.Opcode, wr.Handle, wr.Flags = verbs.WRTagDel, 1<<31|12345, 0 },
	} {
		w3 := &verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 3, Flags: verbs.OpsSignaled, Add: r.tagAdd(13, 3, exact, r.bbuf)}
		w2 := &verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 2, Flags: verbs.OpsSignaled, Add: r.tagAdd(12, 2, exact, r.bbuf), Next: w3}
		w1 := &verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 1, Flags: verbs.OpsSignaled, Add: r.tagAdd(11, 1, exact, r.bbuf), Next: w2}
		spoil(w2)
		bad, err := r.srq.PostSRQOps(w1)
		r.errno(err, syscall.EINVAL)
		if bad != w2 {
			t.Fatalf("%s: reports %+v", name, bad)
		}
		r.b.want(1, verbs.WCSuccess)
		r.b.none()
		r.del(w1.Handle, verbs.WCSuccess)
	}
}

// testTagHandleReuse: row 54: far more receives than slots, matched and cancelled.
func testTagHandleReuse(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 3, 16)
	r.untagged(2)
	for i := range uint64(200) {
		h1 := r.add(2*i, 5, exact, r.bbuf)
		h2 := r.add(2*i+1, 5, exact, r.bbuf)
		m := r.eager(5, uint32(i), 8)
		r.matched(2*i, 5, uint32(i), m[16:], r.bbuf)
		r.sent()
		switch i % 3 {
		case 0:
			r.del(h2, verbs.WCSuccess)
		case 1:
			m := r.eager(5, uint32(i), 4)
			r.matched(2*i+1, 5, uint32(i), m[16:], r.bbuf)
			r.sent()
		default:
			r.del(h1, verbs.WCTMErr)
			r.del(h2, verbs.WCSuccess)
		}
	}
}

// modelEntry is an entry of the model's list.
type modelEntry struct {
	id, tag, mask uint64
	hnd           uint32
	live          bool
}

// tagModel is TMO 5.2, word by word.
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
		r := newTagRig(t, open, opts, tags, 64)
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &tagModel{h: uint16(opts.InitialCount), s: uint16(opts.InitialCount), dorm: opts.Dormant}
		r.untagged(untaggedDepth / 2)
		next := 0
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
					r.unexpected(next, msg)
					next++
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
				r.count = opts.InitialCount + uint32(next) - uint32(rng.IntN(2)) // sometimes one behind
				r.count = max(r.count, opts.InitialCount)
				r.sync()
				m.sync(r.count)
			}
		}
	}
}

// testTagTeardown: row 55: entries, reads and completions that are outstanding keep nothing from going.
func testTagTeardown(t *testing.T, open Opener, opts TagOptions) {
	r := newTagRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.add(1, 5, exact, r.bbuf)
	r.add(2, 6, exact, r.bbuf)
	r.add(3, 7, exact, r.bbuf)
	r.eager(9, 0, 5)
	r.sent()
	r.rndv(6, 0, 1<<20)
	for range 5 {
		r.poll()
	}
	r.b.got = nil
	r.ok(r.qb.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	r.b.wantEvent(verbs.EventQPLastWQEReached)
	r.settle()
	terminal := 0
	for _, w := range r.b.got {
		if w.WRID == 2 && (w.Status != verbs.WCSuccess || w.Flags&verbs.WCFlagTMDataValid != 0) {
			terminal++
		}
	}
	if terminal > 1 {
		t.Errorf("%d terminal completions", terminal)
	}
	if _, err := r.srq.PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagSync}); err != nil && !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}
