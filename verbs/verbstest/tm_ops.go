package verbstest

import (
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 3.1 to 3.3: what a list operation does, and when posting it fails.

// refused posts operations. bad must be the first that fails, with errno.
func (r *tagRig) refused(first, bad *verbs.OpsWR, errno syscall.Errno) {
	r.t.Helper()
	refuse(r.env, r.srq.PostSRQOps, first, bad, errno)
}

// counted returns a signalled operation with the count; an ADD is of receive id for tag id.
func (r *tagRig) counted(op verbs.OpsOpcode, id uint64) *verbs.OpsWR {
	wr := &verbs.OpsWR{Opcode: op, WRID: 1000 + id, Flags: verbs.OpsSignaled | verbs.OpsTMSync, UnexpectedCnt: r.count}
	if op == verbs.WRTagAdd {
		wr.Add = r.tagAdd(id, id, exact, r.bbuf)
	}
	return wr
}

// chain links operations in their order.
func chain(wrs ...*verbs.OpsWR) *verbs.OpsWR {
	for i := 1; i < len(wrs); i++ {
		wrs[i-1].Next = wrs[i]
	}
	return wrs[0]
}

// testTagUnsignaled: unsignalled operations take effect without completions.
func testTagUnsignaled(r *tagRig) {
	r.miss(9)
	var h uint32
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		wr := verbs.OpsWR{Opcode: op, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count - 1, Handle: h}
		if op == verbs.WRTagAdd {
			wr.Add = r.tagAdd(1, 5, exact, r.bbuf)
		}
		if op == verbs.WRTagSync {
			wr.UnexpectedCnt++
		}
		r.post(&wr)
		h = wr.Handle
	}
	r.b.none()
	r.hit(1, 5)
	r.miss(5)
}

// testTagCountFlag: without TM_SYNC unexpected_cnt is ignored: neither a right nor a wrong one has
// an effect.
func testTagCountFlag(r *tagRig) {
	for _, op := range []verbs.OpsOpcode{verbs.WRTagSync, verbs.WRTagDel, verbs.WRTagAdd} {
		silent := func(count uint32) {
			r.t.Helper()
			wr := r.counted(op, 50)
			wr.Flags, wr.UnexpectedCnt = verbs.OpsSignaled, count
			if op == verbs.WRTagDel {
				wr.Handle = r.add(60, 60, exact, r.bbuf)
			}
			r.post(wr)
			r.b.want(wr.WRID, verbs.WCSuccess)
		}
		silent(r.count + 7)
		bare := r.counted(verbs.WRTagAdd, 5)
		bare.Flags = verbs.OpsSignaled
		r.post(bare)
		r.b.want(bare.WRID, verbs.WCSuccess)
		r.hit(5, 5) // the count of before is still valid
		r.miss(9)
		r.count-- // the device's value
		r.add(5, 5, exact, r.bbuf)
		silent(r.count + 1)
		r.count++
		r.miss(5)
		r.sync()
		r.hit(5, 5)
	}
}

// testTagFormula: an entry matches the messages whose tag equals its own in all bits of its mask,
// and no others.
func testTagFormula(t *testing.T, open Opener, opts TagOptions) {
	tag := uint64(0xa5a5f00f3c3c9669)
	r := newSmallRig(t, open, opts, 15, 64)
	for _, bit := range []uint64{1 << 0, 1 << 7, 1 << 31, 1 << 32, 1 << 63} {
		r.add(1, tag, exact, r.bbuf)
		r.passed(tag ^ bit)
		r.hit(1, tag)
		r.add(2, tag&bit, bit, r.bbuf)
		r.passed(tag ^ bit)
		r.hit(2, ^(tag ^ bit))
		r.add(3, tag&^bit, ^bit, r.bbuf)
		r.passed(^tag)
		r.hit(3, tag^bit)
		r.add(4, tag&^bit, ^bit, r.bbuf)
		r.hit(4, tag)
	}
}

// testTagAdd: ADD returns its handle at once, before the device has executed it, and appends at the
// tail, also where it reuses the slot of an older entry.
func testTagAdd(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 5, 64)
	var wrs []*verbs.OpsWR
	handles := map[uint32]bool{}
	for i := range uint64(5) {
		wr := r.counted(verbs.WRTagAdd, i)
		wr.Add.Tag, wr.Handle = 5, 1<<31|12345
		wrs = append(wrs, wr)
	}
	r.post(chain(wrs...))
	for _, wr := range wrs {
		handles[wr.Handle] = true
	}
	if len(handles) != 5 || handles[1<<31|12345] {
		t.Fatalf("the handles of 5 entries are %v", handles)
	}
	for _, wr := range wrs {
		r.b.want(wr.WRID, verbs.WCSuccess)
	}
	r.del(wrs[1].Handle, verbs.WCSuccess)
	r.hit(0, 5)
	r.add(11, 5, exact, r.bbuf)
	r.add(12, 5, exact, r.bbuf)
	for _, id := range []uint64{2, 3, 4, 11, 12} {
		r.hit(id, 5)
	}
}

// testTagDel: DEL removes its entry, live or dormant, and no other, and the receive has no
// completion. For an entry that was matched each DEL completes with TM_ERR.
func testTagDel(r *tagRig) {
	var hs [4]uint32
	for i := range hs {
		hs[i] = r.add(uint64(i), 5, exact, r.bbuf)
	}
	r.del(hs[1], verbs.WCSuccess)
	r.hit(0, 5)
	r.del(hs[0], verbs.WCTMErr)
	r.hit(2, 5)
	for late := range uint32(2) { // the DEL reports the count, or does not yet
		r.miss(9)
		r.count-- // the device's value
		dormant := r.add(4, 6, exact, r.bbuf)
		r.count += 1 - late
		r.del(dormant, verbs.WCSuccess)
		r.count += late
		r.sync()
		r.miss(6)
	}
	r.sync()
	r.hit(3, 5)
	r.del(hs[3], verbs.WCTMErr)
	r.del(r.add(5, 6, exact, r.bbuf), verbs.WCSuccess)
	r.miss(6)
	r.b.none()
}

// testTagNotTM: list operations on an SRQ without tag matching fail with EINVAL at the first one.
func testTagNotTM(r *tagRig) {
	r.srq = r.b.newSRQ(4)
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		first := r.counted(op, 5)
		r.refused(chain(first, r.counted(verbs.WRTagSync, 6)), first, syscall.EINVAL)
	}
	r.b.none()
}

// testTagOpsFull: with max_ops operations outstanding every other one fails with ENOMEM, whatever
// its opcode.
func testTagOpsFull(t *testing.T, open Opener, opts TagOptions) {
	const ops = 8
	r := newSmallRig(t, open, opts, 15, ops)
	h := r.add(1, 5, exact, r.bbuf)
	for range 2 {
		for range ops - 2 {
			r.post(r.counted(verbs.WRTagSync, 0))
		}
		wrs := []*verbs.OpsWR{r.counted(verbs.WRTagSync, 0), r.counted(verbs.WRTagSync, 0), r.counted(verbs.WRTagSync, 0)}
		r.refused(chain(wrs...), wrs[2], syscall.ENOMEM)
		for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
			for _, flags := range []verbs.OpsFlags{0, verbs.OpsSignaled} {
				wr := r.counted(op, 7)
				wr.Flags, wr.Handle = flags, h
				r.refused(wr, wr, syscall.ENOMEM)
			}
		}
		for range ops {
			r.b.want(1000, verbs.WCSuccess)
		}
		r.b.none()
	}
	r.hit(1, 5)
}

// testTagListFull: an ADD to a full list is refused: ENOMEM. It leaves the list unchanged, and
// other operations still work.
func testTagListFull(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 2, 64)
	wrs := []*verbs.OpsWR{r.counted(verbs.WRTagAdd, 0), r.counted(verbs.WRTagSync, 1), r.counted(verbs.WRTagAdd, 2),
		r.counted(verbs.WRTagAdd, 3), r.counted(verbs.WRTagSync, 4)}
	r.refused(chain(wrs...), wrs[3], syscall.ENOMEM)
	for _, wr := range wrs[:3] {
		r.b.want(wr.WRID, verbs.WCSuccess)
	}
	for _, flags := range []verbs.OpsFlags{0, verbs.OpsSignaled, verbs.OpsTMSync} {
		wr := r.counted(verbs.WRTagAdd, 9)
		wr.Flags = flags
		r.refused(wr, wr, syscall.ENOMEM)
	}
	r.sync()
	r.b.none()
	r.hit(2, 2)
	r.del(wrs[0].Handle, verbs.WCSuccess)
	r.add(5, 5, exact, r.bbuf)
	r.hit(5, 5)
}

// testTagOpcodes: an operation with an unknown opcode or flag fails with EINVAL, without effect.
func testTagOpcodes(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 2)
	for _, op := range []verbs.OpsOpcode{3, 7, 1 << 31} {
		for range 3 { // more often than there are slots in either queue
			wr := r.counted(verbs.WRTagAdd, 5)
			wr.Opcode = op
			r.refused(wr, wr, syscall.EINVAL)
		}
	}
	for _, op := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		for _, flag := range []verbs.OpsFlags{1 << 2, 1 << 9, 1 << 31} {
			wr := r.counted(op, 5)
			wr.Flags |= flag
			r.refused(wr, wr, syscall.EINVAL)
		}
	}
	r.b.none()
	r.add(5, 5, exact, r.bbuf)
	r.hit(5, 5)
}

// testTagSGEs: an ADD takes as many scatter/gather entries as DeviceAttr allows, filled in order.
// With more it is EINVAL, without effect.
func testTagSGEs(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 2)
	most := int(r.b.dev.Attr().TM.MaxSGE)
	list := func(n int) (out []verbs.SGE) {
		for i := range n {
			out = append(out, verbs.SGE{Data: r.bbuf[2*i*10:][:10], LKey: r.bmr.LKey()})
		}
		return out
	}
	wr := r.counted(verbs.WRTagAdd, 5)
	for range 3 {
		wr.Add.SGList = list(most + 1)
		r.refused(wr, wr, syscall.EINVAL)
	}
	r.b.none()
	wr.Add.SGList = list(most)
	r.post(wr)
	r.b.want(wr.WRID, verbs.WCSuccess)
	m := r.eager(5, 6, 10*most)
	r.whole(5, 5, 6, 10*most)
	r.sent()
	for i, sg := range wr.Add.SGList {
		if want := m[verbs.TMHSize+10*i:][:10]; string(sg.Data) != string(want) {
			t.Fatalf("entry %d of the list has %x, want %x", i, sg.Data, want)
		}
	}
}

// testTagDelStale: a DEL of a handle that was never returned removes nothing: TM_ERR, or EINVAL
// when it is posted.
func testTagDelStale(t *testing.T, open Opener, opts TagOptions) {
	for _, tags := range []uint32{1, 2, 7} {
		r := newSmallRig(t, open, opts, tags, 64)
		given := map[uint32]bool{}
		for i := range uint64(tags) {
			given[r.add(i, i, exact, r.bbuf)] = true
		}
		for h := range given {
			for _, stale := range []uint32{h + 1, h - 1, h ^ 1<<31, h ^ 1<<16, h ^ 1<<8, 0, ^uint32(0)} {
				if !given[stale] {
					r.delStale(stale)
				}
			}
		}
		r.b.none()
		wr := r.counted(verbs.WRTagAdd, 100)
		r.refused(wr, wr, syscall.ENOMEM) // no slot was freed either
		for i := range uint64(tags) {
			r.hit(i, i)
		}
	}
}

// delStale posts a DEL of an invalid handle.
func (r *tagRig) delStale(h uint32) {
	r.t.Helper()
	wr := r.counted(verbs.WRTagDel, 8)
	wr.Handle = h
	if _, err := r.srq.PostSRQOps(wr); err != nil {
		r.errno(err, syscall.EINVAL)
	} else {
		r.b.want(wr.WRID, verbs.WCTMErr)
	}
	wr.Flags = 0
	if _, err := r.srq.PostSRQOps(wr); err != nil {
		r.errno(err, syscall.EINVAL)
	}
}
