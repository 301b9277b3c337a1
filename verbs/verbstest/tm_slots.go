package verbstest

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 3.4 and 4.5: when slots become free, and the order of completions.

// first polls a single completion.
func (r *tagRig) first() verbs.WC {
	r.t.Helper()
	var one [1]verbs.WC
	got := 0
	r.unpolled(func() {
		r.until("a completion", func() bool {
			letGo(r.b.dev, func() {})
			var err error
			if got == 0 {
				got, err = Poll(r.tcq, one[:])
				r.ok(err)
			}
			return got == 1
		})
	})
	return one[0]
}

// taken reports whether the only slot of the list is in use. It leaves the slot as it was.
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

// testTagSlotDebt: a slot is in use until all of its completions were polled: that of a signalled
// ADD, the last one of the receive, and that of a DEL.
func testTagSlotDebt(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
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
	addTo := func(buf []byte, flags verbs.OpsFlags) uint32 {
		wr := verbs.OpsWR{Opcode: verbs.WRTagAdd, WRID: 3, Flags: flags | verbs.OpsTMSync, UnexpectedCnt: r.count, Add: r.tagAdd(1, 5, exact, buf)}
		r.post(&wr)
		r.unpolled(r.settle)
		return wr.Handle
	}
	add := func(flags verbs.OpsFlags) uint32 { return addTo(r.bbuf, flags) }
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
	fin := r.finBuffer()
	r.rndv(5, 2, 100)
	r.unpolled(func() { r.wantFIN(8, 5, 2, fin) })
	if w := step(1, verbs.WCSuccess, true); w.Flags != flagMatch {
		t.Fatalf("%+v", w)
	}
	if w := step(1, verbs.WCSuccess, false); w.Flags != flagData {
		t.Fatalf("%+v", w)
	}

	for range 2 {
		addTo(r.bbuf[:99], 0)
		r.rndv(5, 2, 100)
		step(1, verbs.WCTMRndvIncomplete, opts.TwoIncomplete)
		if opts.TwoIncomplete {
			step(1, verbs.WCSuccess, false)
		}
	}

	other, _ := r.connect(r.a, r.b, qpConf{}, r.conf())
	add(0)
	r.rndvOn(other, 5, 2, verbs.RVH{VA: r.amr.Addr(), RKey: r.amr.RKey() ^ 1<<20, Len: 100})
	step(1, verbs.WCSuccess, true)
	step(1, verbs.WCTMRndvIncomplete, false) // the read was refused
	r.unpolled(func() {
		r.inErr(other)
		r.settle()
	})
	r.a.got = nil // its request may have completed or not

	addTo(r.bbuf[:7], 0)
	r.unpolled(func() { r.eager(5, 0, 8); r.a.want(77, verbs.WCRemInvReqErr) })
	step(1, verbs.WCLocLenErr, false)
}

// testTagForced: an unsignalled DEL frees its entry's slot at once if the completion of the ADD was
// polled before; else polling that frees it. An ADD without a completion never has to be polled.
func testTagForced(t *testing.T, open Opener, opts TagOptions) {
	r := newSmallRig(t, open, opts, 1, 64)
	r.miss(5)
	r.count-- // the device's value: entries are dormant
	force := func(h uint32) {
		t.Helper()
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: h})
	}
	r.unpolled(func() {
		for range 5 {
			wr := &verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(1, 5, exact, r.bbuf)}
			r.post(wr)
			force(wr.Handle)
		}
	})
	wr := r.counted(verbs.WRTagAdd, 5)
	r.post(wr)
	force(wr.Handle)
	next := r.counted(verbs.WRTagAdd, 6)
	r.refused(next, next, syscall.ENOMEM)
	r.b.want(wr.WRID, verbs.WCSuccess)
	force(r.add(6, 6, exact, r.bbuf))
	r.count++
	r.add(7, 7, exact, r.bbuf)
	r.hit(7, 7)
	r.b.none()

	const tags = 7
	r = newSmallRig(t, open, opts, tags, 64)
	r.miss(5)
	r.count--
	for round := range 20 {
		var hs []uint32
		for id := range uint64(tags) {
			wr := &verbs.OpsWR{Opcode: verbs.WRTagAdd, Add: r.tagAdd(id, id, exact, r.bbuf)}
			r.post(wr)
			hs = append(hs, wr.Handle)
		}
		wr := r.counted(verbs.WRTagAdd, tags)
		r.refused(wr, wr, syscall.ENOMEM)
		for i := range hs {
			force(hs[(3*i+round)%tags])
		}
		r.sync()
	}
	r.b.none()
}

// testTagTail: polling the completion of a signalled operation frees the slots in the command queue
// of that operation and all before it, and none behind it.
func testTagTail(t *testing.T, open Opener, opts TagOptions) {
	const ops = 8
	r := newSmallRig(t, open, opts, 15, ops)
	silent := func(n int) {
		t.Helper()
		for range n {
			r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync})
		}
	}
	full := func() {
		t.Helper()
		wr := &verbs.OpsWR{Opcode: verbs.WRTagSync}
		r.refused(wr, wr, syscall.ENOMEM)
	}
	for behind := range ops - 1 {
		silent(ops - 2 - behind)
		r.post(r.counted(verbs.WRTagSync, 1))
		silent(behind)
		r.post(r.counted(verbs.WRTagSync, 2))
		full()
		r.unpolled(r.settle) // executed, which is not enough
		full()
		if w := r.first(); w.WRID != 1001 {
			t.Fatalf("%+v", w)
		}
		silent(ops - 2 - behind)
		r.post(r.counted(verbs.WRTagSync, 3))
		full()
		if w := r.first(); w.WRID != 1002 {
			t.Fatalf("%+v", w)
		}
		silent(behind + 1)
		full()
		if w := r.first(); w.WRID != 1003 {
			t.Fatalf("%+v", w)
		}
		silent(ops - 2 - behind)
		r.post(r.counted(verbs.WRTagSync, 4))
		r.b.want(1004, verbs.WCSuccess) // all slots are free again
	}
}

// testTagWedge: after max_ops unsignalled operations no completion can free a slot: every later one
// is refused for ever. A device may prevent that and refuse the last of them, unless it is
// signalled.
func testTagWedge(t *testing.T, open Opener, opts TagOptions) {
	const ops = 8
	r := newSmallRig(t, open, opts, 15, ops)
	for range ops - 1 {
		r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync})
	}
	if _, err := r.srq.PostSRQOps(&verbs.OpsWR{Opcode: verbs.WRTagSync}); err != nil {
		r.errno(err, syscall.EINVAL)
		for range 2 {
			r.sync()
			for range ops - 1 {
				r.post(&verbs.OpsWR{Opcode: verbs.WRTagSync})
			}
		}
		return
	}
	for range 2 {
		for _, op := range []verbs.OpsOpcode{verbs.WRTagSync, verbs.WRTagAdd} {
			wr := r.counted(op, 1)
			r.refused(wr, wr, syscall.ENOMEM)
		}
		r.b.none()
	}
}

// testTagListOpOrder: list operations are executed, and complete, in the order of posting, of one
// chain or of many, among the completions of messages.
func testTagListOpOrder(r *tagRig) {
	want := uint64(1000)
	opcodes := [...]verbs.WCOpcode{verbs.WCTMAdd, verbs.WCTMSync, verbs.WCTMDel, verbs.WCTMAdd, verbs.WCTMDel}
	taken := r.add(500, 500, exact, r.bbuf)
	r.add(600, 600, exact, r.bbuf)
	r.unpolled(func() {
		for round := range uint64(5) {
			wrs := []*verbs.OpsWR{r.counted(verbs.WRTagAdd, 5*round), r.counted(verbs.WRTagSync, 5*round+1), r.counted(verbs.WRTagDel, 5*round+2),
				r.counted(verbs.WRTagAdd, 5*round+3), r.counted(verbs.WRTagDel, 5*round+4)}
			r.post(wrs[0])
			wrs[2].Handle, wrs[4].Handle = wrs[0].Handle, taken
			r.post(chain(wrs[1:]...))
			if round == 2 {
				r.settle() // those so far are executed
				r.eager(600, 0, 8)
				r.sent()
			}
			taken = wrs[3].Handle
		}
	})
	var last uint64
	for last != 1024 {
		w := r.b.next()
		if w.Opcode == verbs.WCTMRecv {
			continue
		}
		if w.WRID != want || w.Status != verbs.WCSuccess || w.Opcode != opcodes[(want-1000)%5] {
			r.t.Fatalf("%+v, want the success of operation %d", w, want)
		}
		last = w.WRID
		want++
	}
}

// testTagDelAfterMatch: when a DEL fails, its entry's MATCH is before it in the CQ, whenever the
// message arrives.
func testTagDelAfterMatch(r *tagRig) {
	fmr, fin := r.a.mem(64)
	lost := map[bool]int{}
	for i := range 30 {
		r.stocked()
		wr := r.counted(verbs.WRTagDel, 2)
		wr.Handle = r.add(1, 5, exact, r.bbuf)
		rndv := i%3 == 2
		if rndv {
			r.a.recv(r.qa, 8, sge(fmr, fin)) // one that no FIN takes is for the next
			r.rndv(5, 6, 3000)
		} else {
			r.eager(5, 6, 8+3000*(i%3))
		}
		for range i * i {
			r.poll()
		}
		r.post(wr)
		lost[r.delRaced(wr.WRID)]++
		if !rndv {
			r.sentKeepingFINs()
		}
	}
	if lost[true] == 0 {
		r.t.Error("no DEL came too late")
	}
}

// delRaced polls the completions of a DEL and of a concurrent message for receive 1, and reports
// whether the DEL was too late.
func (r *tagRig) delRaced(del uint64) (lost bool) {
	r.t.Helper()
	matched, deleted, ended := false, false, false
	for !deleted || !ended {
		w := r.b.next()
		switch {
		case w.WRID == del:
			deleted, lost = true, w.Status == verbs.WCTMErr
			if lost != matched {
				r.t.Fatalf("%+v, with a MATCH before: %v", w, matched)
			}
		case w.WRID == 1:
			matched = matched || w.Flags&flagMatch != 0
			ended = w.Flags&flagData != 0
			if deleted && !lost {
				r.t.Fatalf("%+v of an entry that was removed", w)
			}
		default: // unexpected: the DEL was first
			ended = true
			r.used++
			r.count++
		}
	}
	return lost
}

// testTagFullTold: a full list and a full command queue both fail with ENOMEM. A host that counts
// entries and operations as in TMO 3.4 knows before each post whether and which of them is full.
func testTagFullTold(t *testing.T, open Opener, opts TagOptions) {
	const tags, ops = 5, 9
	r := newSmallRig(t, open, opts, tags, ops)
	rng := rand.New(rand.NewPCG(7, 1))
	type signaled struct {
		index int
		free  int // entries that its completion frees
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
			wr.Flags &^= verbs.OpsSignaled // an entry's slot then depends on its DEL alone
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

// testTagCQOrder: MATCH and unexpected completions come in the order in which the device classified
// the messages, whenever they are polled.
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
	for i := range uint64(n) {
		switch {
		case i%3 != 0:
			r.b.want(i, verbs.WCSuccess)
		case !opts.Dormant:
			r.inUntagged()
		}
	}
}
