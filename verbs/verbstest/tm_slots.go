package verbstest

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 3.4 and 4.5: what gives slots back, and in which order completions come.

// unpolled runs f while the receiver's device works but nobody polls the tag queue's completions.
func (r *tagRig) unpolled(f func()) {
	r.t.Helper()
	cq := r.b.cq
	if r.spare == nil {
		r.spare = r.b.newCQ(16)
	}
	r.b.cq = r.spare
	f()
	r.b.cq = cq
}

// first polls one single completion.
func (r *tagRig) first() verbs.WC {
	r.t.Helper()
	var one [1]verbs.WC
	got := 0
	r.unpolled(func() {
		r.until("a completion", func() bool {
			letGo(r.b.dev, func() {})
			var err error
			if got == 0 {
				got, err = r.tcq.PollCQ(one[:])
				r.ok(err)
			}
			return got == 1
		})
	})
	return one[0]
}

// taken says whether the only slot of the list is in use, and leaves it as it was.
func (r *tagRig) taken() bool {
	r.t.Helper()
	wr := &verbs.OpsWR{Opcode: verbs.WRTagAdd, Flags: verbs.OpsTMSync, UnexpectedCnt: r.count, Add: r.tagAdd(99, 99, exact, r.bbuf), WRID: 90}
	_, err := r.srq.PostSRQOps(wr)
	if err != nil {
		r.errno(err, syscall.ENOMEM)
		return true
	}
	r.del(wr.Handle, verbs.WCSuccess)
	return false
}

// testTagSlotDebt: a slot is in use until all of its completions were polled: of a signalled ADD, the last one of the receive, and
// of a DEL.
func testTagSlotDebt(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	fmr, fin := r.a.mem(64)
	check := func(what string, want bool) {
		t.Helper()
		if r.taken() != want {
			t.Fatalf("the slot is taken: %v, after %s", !want, what)
		}
	}
	step := func(wrid uint64, status verbs.WCStatus, want bool) verbs.WC {
		t.Helper()
		w := r.first()
		if w.WRID != wrid || w.Status != status {
			t.Fatalf("%+v, want request %d with %v", w, wrid, status)
		}
		check("polling", want)
		return w
	}
	add := func(flags verbs.OpsFlags) uint32 {
		wr := verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 3, Flags: flags | verbs.OpsTMSync, UnexpectedCnt: r.count, Add: r.tagAdd(1, 5, exact, r.bbuf)}
		r.post(&wr)
		r.unpolled(r.settle)
		return wr.Handle
	}
	short := func() { r.unpolled(func() { r.eager(5, 0, 8); r.sent() }) }

	add(0)
	short()
	check("the message", true)
	step(1, verbs.WCSuccess, false)

	add(verbs.OpsSignaled)
	short()
	step(3, verbs.WCSuccess, true)
	step(1, verbs.WCSuccess, false)

	h := add(0)
	short()
	r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, WRID: 4, Flags: verbs.OpsSignaled})
	step(1, verbs.WCSuccess, true) // the MATCH precedes the failure of the DEL
	step(4, verbs.WCTMErr, false)

	h = add(0)
	r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h, WRID: 4, Flags: verbs.OpsSignaled})
	r.unpolled(r.settle)
	check("the DEL", true)
	step(4, verbs.WCSuccess, false)

	add(0)
	r.a.recv(r.qa, 8, sge(fmr, fin))
	r.rndv(5, 2, 100)
	r.unpolled(func() { r.wantFIN(8, 5, 2, fin) })
	if w := step(1, verbs.WCSuccess, true); w.Flags != verbs.WCFlagTMMatch {
		t.Fatalf("%+v", w)
	}
	if w := step(1, verbs.WCSuccess, false); w.Flags != verbs.WCFlagTMDataValid {
		t.Fatalf("%+v", w)
	}
}

// testTagFullTold: a full list and a full command queue both give ENOMEM. A host that counts entries and operations as TMO 3.4 says
// knows before each post which of them is full, if any.
func testTagFullTold(t *testing.T, open Opener, opts TagOptions) {
	const tags, ops = 5, 9
	r := newSmallRig(t, open, opts, tags, ops)
	rng := rand.New(rand.NewPCG(7, 1))
	type signaled struct {
		index int
		free  int // entries that its completion gives back
	}
	var owed []signaled
	var live []uint32
	used, posted, tail := 0, 0, 0
	seen := map[string]int{}
	for i := range 600 {
		if rng.IntN(4) == 0 && len(owed) > 0 {
			if w := r.first(); w.WRID != uint64(owed[0].index) || w.Status != verbs.WCSuccess {
				t.Fatalf("%+v, want operation %d", w, owed[0].index)
			}
			tail = owed[0].index + 1
			used -= owed[0].free
			owed = owed[1:]
			continue
		}
		wr := verbs.OpsWR{Opcode: verbs.WRTagSync, WRID: uint64(posted), Flags: verbs.OpsTMSync, UnexpectedCnt: r.count}
		free := 0
		switch k := rng.IntN(5); {
		case k < 3:
			wr.Opcode, wr.Add = verbs.WRTagAdd, r.tagAdd(1, uint64(i), exact, r.bbuf)
		case k < 4 && len(live) > 0:
			wr.Opcode, wr.Handle, free = verbs.WRTagDel, live[0], 1
			wr.Flags |= verbs.OpsSignaled
		}
		if len(owed) == 0 && posted-tail >= ops/2 { // the queue must not be wedged (V14)
			wr.Flags |= verbs.OpsSignaled
		}
		if wr.Opcode == verbs.WRTagAdd {
			wr.Flags &^= verbs.OpsSignaled // so that an entry's slot depends on its DEL alone
		}
		if wr.Flags&verbs.OpsSignaled == 0 && len(owed) == 0 && posted-tail == ops-1 {
			continue
		}
		full := ""
		switch {
		case posted-tail == ops:
			full = "queue"
		case wr.Opcode == verbs.WRTagAdd && used == tags:
			full = "list"
		}
		seen[full]++
		bad, err := r.srq.PostSRQOps(&wr)
		if full != "" {
			r.errno(err, syscall.ENOMEM)
			if bad != &wr {
				t.Fatal("wrong failing request")
			}
			continue
		}
		if err != nil {
			t.Fatalf("operation %d with %d entries and %d operations outstanding: %v", i, used, posted-tail, err)
		}
		if wr.Flags&verbs.OpsSignaled != 0 {
			owed = append(owed, signaled{posted, free})
		}
		posted++
		switch wr.Opcode {
		case verbs.WRTagAdd:
			used++
			live = append(live, wr.Handle)
		case verbs.WRTagDel:
			live = live[1:]
		}
	}
	if seen["list"] < 5 || seen["queue"] < 5 {
		t.Errorf("too few cases: %v", seen)
	}
}

// testTagUnsignaled: operations without SIGNALED have no completions, but effect.
func testTagUnsignaled(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	r.untagged(8)
	r.miss(0, 9)
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
	r.miss(1, 5)
}

// testTagOrder: operations take effect, and complete, in the order of posting: ADDs of one chain are matched in it.
func testTagOrder(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	const n = 8
	var wr [n]verbs.OpsWR
	for i := range wr {
		wr[i] = verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: uint64(20 + i), Flags: verbs.OpsSignaled, Add: r.tagAdd(uint64(i), 5, exact, r.bbuf)}
		if i%3 == 2 {
			wr[i].Opcode = verbs.WRTagSync
		}
		if i > 0 {
			wr[i-1].Next = &wr[i]
		}
	}
	r.post(&wr[0])
	for i := range wr {
		w := r.b.want(uint64(20+i), verbs.WCSuccess)
		if want := verbs.WCTMAdd + verbs.WCOpcode(wr[i].Opcode); w.Opcode != want {
			t.Fatalf("%+v, want opcode %d", w, want)
		}
	}
	r.del(wr[1].Handle, verbs.WCSuccess)
	for i := range uint64(n) {
		if i%3 != 2 && i != 1 {
			r.hit(i, 5)
		}
	}
}

// testTagCQOrder: MATCH and unexpected completions come in the order in which the device classified the messages, whenever they
// are polled.
func testTagCQOrder(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 63, 200)
	const n = 30
	r.untagged(n)
	for i := range uint64(n) {
		if i%3 != 0 {
			r.add(i, i, exact, r.bbuf)
		}
	}
	r.unpolled(func() {
		for i := range uint64(n) {
			if opts.Dormant && i%3 == 0 {
				continue // an unexpected message makes the others dormant
			}
			r.eager(i, 0, 8)
			r.sent()
		}
	})
	k := uint64(0)
	for i := range uint64(n) {
		switch {
		case i%3 != 0:
			r.b.want(i, verbs.WCSuccess)
		case !opts.Dormant:
			r.b.want(untaggedID+k, verbs.WCSuccess)
			k++
		}
	}
}

// testTagGranted: the unexpected ring takes as many buffers as creation granted, which is at least what was asked for, and no more.
func testTagGranted(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 15, 64)
	attr := tagAttr(r.tcq, 15, 64)
	attr.MaxWR, attr.MaxSGE = 5, 1
	srq, err := r.b.pd.CreateSRQ(attr)
	r.ok(err)
	r.b.onFree(srq.Destroy)
	if attr.MaxWR < 5 || attr.MaxSGE < 1 {
		t.Fatalf("granted %+v", attr.SRQAttr)
	}
	for i := range attr.MaxWR {
		r.b.srqRecv(srq, uint64(i), sge(r.bmr, r.bbuf[:64]))
	}
	wr := &verbs.RecvWR{SGList: sge(r.bmr, r.bbuf[:64])}
	bad, err := srq.PostSRQRecv(wr)
	r.errno(err, syscall.ENOMEM)
	if bad != wr {
		t.Error("wrong failing request")
	}
}
