//go:build invariants

package progress

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/transport"
)

// breach breaks a rule. The violation says what follows the rule's name and a colon.
type breach struct {
	rule string
	do   func(e *Engine)
}

// breaches requires that each breach, of an engine with something of everything, is found: by check
// or, where that is nil, as it happens. Before it nothing is broken.
func breaches(t *testing.T, list map[string]breach, check func(e *Engine)) {
	for name, b := range list {
		t.Run(name, func(t *testing.T) {
			_, e := busy(t)
			e.mu.Lock()
			defer e.mu.Unlock()
			listCheck{e}.all()
			finds := func() { b.do(e) }
			if check != nil {
				b.do(e)
				finds = func() { check(e) }
			}
			rule, text, _ := strings.Cut(b.rule, ": ")
			require.Contains(t, broken(t, rule, finds), text)
		})
	}
}

// busy is rank 1 of two with something of everything: receives in the device and kept, unexpected
// messages of both kinds, sends that were requested and that wait for room, a receive that reads.
func busy(t *testing.T) (*cluster, *Engine) {
	c := doomed(t, 2, fakeOpts{tags: 8, room: 2, revoke: true})
	e := c.e[1]
	c.net.nodes[1].holdRds = true
	c.e[0].Isend(1, 10, fill(1000, 1)) // is read
	c.step()
	e.Irecv(0, 10, exact, make([]byte, 1000))
	c.e[0].Isend(1, 11, fill(8, 1))
	c.e[0].Isend(1, 12, fill(1000, 1))
	c.step()
	e.off.least = 100
	e.Irecv(0, 20, exact, make([]byte, 100))
	e.Irecv(0, 21, exact, make([]byte, 100))
	e.Irecv(0, 22, exact, make([]byte, 8))
	e.Irecv(0, 22, exact, make([]byte, 100)) // overlapped by the one before
	e.Irecv(0, 22, exact, make([]byte, 100))
	for range 3 {
		e.Issend(0, 1, fill(8, 1))
	}
	require.Equal(t, 1, e.reads.used)
	require.Equal(t, 2, e.unexp.Len())
	require.Equal(t, 5, e.posted.Len())
	require.Equal(t, 3, e.off.kept.Len())
	require.Equal(t, 2, e.sends.used)
	require.False(t, e.peers[0].out.Empty())
	return c, e
}

// queuedTo is the first send that waits for a rank.
func queuedTo(e *Engine, rank int) *Op {
	return e.peers[rank].out.First()
}

// unkeep drops the unexpected requests of rank 0.
func unkeep(e *Engine) { e.peers[0].consumed(e.unexp.DropLost(0, e.contexts.space)) }

// opOf is the newest receive that matches a tag.
func opOf(e *Engine, tag uint64) (last *Op) {
	for _, op := range e.posted.All() {
		if (op.tag^tag)&op.mask == 0 {
			last = op
		}
	}
	return last
}

func TestRulesAreChecked(t *testing.T) {
	breaches(t, map[string]breach{
		"receive forgotten":         {"V5", func(e *Engine) { e.posted.Remove(opOf(e, 20).handle) }},
		"receive twice in the list": {"V5", func(e *Engine) { e.posted.Post(20, exact, opOf(e, 20)) }},
		"receive out of order": {"V5", func(e *Engine) {
			op := opOf(e, 20)
			e.posted.Remove(op.handle)
			op.handle = e.posted.Post(20, exact, op)
		}},
		"matched receive in the list": {"V5", func(e *Engine) { opOf(e, 20).state = opMatched }},
		"ended receive in the list":   {"V5", func(e *Engine) { opOf(e, 20).SetEnded() }},
		"kept receive forgotten":      {"V5", func(e *Engine) { op := opOf(e, 22); e.off.waiting.remove(op); e.off.kept.Remove(op.kept) }},
		"kept receive does not wait":  {"V18", func(e *Engine) { e.off.waiting.remove(opOf(e, 22)) }},
		"waiting receive is not kept": {"V5", func(e *Engine) { op := opOf(e, 22); e.off.kept.Remove(op.kept); e.off.kept.Post(22, exact, op) }},
		"kept receives out of order": {"V5", func(e *Engine) {
			for _, op := range e.off.kept.All() { // the first goes behind the others
				e.off.kept.Remove(op.kept)
				op.kept = e.off.kept.Post(op.tag, op.mask, op)
				break
			}
		}},
		"waiting receive left the kept": {"V5", func(e *Engine) { e.off.kept.Remove(opOf(e, 22).kept) }},
		"waiting receives out of order": {"V5", func(e *Engine) {
			op := e.off.waiting.head
			e.off.waiting.remove(op)
			e.off.waiting.push(op)
		}},
		"waiting receive is in no list": {"V5", func(e *Engine) { op := opOf(e, 22); e.off.waiting.remove(op); op.linked = true }},
		"waiting receive comes to the kept too late": {"V6", func(e *Engine) {
			op := opOf(e, 22)
			e.off.kept.Remove(op.kept)
			op.kept = 0
			e.off.since, _ = e.posted.Seq(op.handle)
		}},
		"overlapping receive offloaded": {"V6", func(e *Engine) { op := opOf(e, 20); op.tag = 22; op.note.order = 1 << 20; reorder(e, op) }},
		"receive beside its message":    {"V7", func(e *Engine) { e.unexp.KeepEager(0, 20, nil) }},
		"posted without a search":       {"V7", func(e *Engine) { post(e, 11) }},
		"beside a requeued message":     {"V7", func(e *Engine) { requeue(e, 12); post(e, 12) }},
		"withdrawn what nobody has":     {"list", func(e *Engine) { e.peers[0].withdraws = []uint32{rndvName} }},
		"message out of order": {"V1", func(e *Engine) {
			for m := range e.unexp.All() {
				m.Seq = 1
			}
		}},
		"lost peer has a request":    {"list", func(e *Engine) { e.peers[0].lost = ErrPeerLost }},
		"message counted twice":      {"V8", func(e *Engine) { e.off.handled++ }},
		"message not counted":        {"V8", func(e *Engine) { e.off.handled-- }},
		"messages do not count":      {"V8", func(e *Engine) { e.off.counts = false }},
		"forced DEL forgotten":       {"V9", func(e *Engine) { e.inv.due = &foundReceive{slotOf(1), 1} }},
		"device has another":         {"V12", func(e *Engine) { opOf(e, 20).slot.gen++ }},
		"cancelling without a cause": {"V12", func(e *Engine) { startDel(e); cancellingOp(e).err = nil }},
		"cause without a DEL":        {"V12", func(e *Engine) { opOf(e, 20).err = ErrCanceled }},
		"entries miscounted":         {"V14", func(e *Engine) { e.off.entries++ }},
		"fresh entries miscounted":   {"V14", func(e *Engine) { e.off.fresh++ }},
		"device's slot lost":         {"V14", func(e *Engine) { e.off.slots.used++ }},
		"buffer not registered":      {"V16", func(e *Engine) { op := e.sends.entries[0].op; op.region = nil }},
		"memory of one under way": {"pool", func(e *Engine) {
			op := opOf(e, 20)
			order := op.note.order
			op.takeNote(noteRecv)
			op.note.order = order
		}},
		"send in a wrong slot":            {"slot", func(e *Engine) { e.sends.entries[0].op.slot.gen++ }},
		"slots miscounted":                {"slot", func(e *Engine) { e.sends.used++ }},
		"large ones miscounted":           {"slot", func(e *Engine) { e.wait.Large = -1 }},
		"reads miscounted":                {"slot", func(e *Engine) { e.reads.used++ }},
		"receive reads nothing":           {"V18", func(e *Engine) { e.reads.entries[0].op.read.active = 0 }},
		"reads beyond the buffer":         {"V4", func(e *Engine) { r := &e.reads.entries[0].op.read; r.want++ }},
		"peer not dirty":                  {"V18", func(e *Engine) { e.peers[0].dirty, e.dirty = false, nil }},
		"dirty peer forgotten":            {"V18", func(e *Engine) { e.dirty = nil }},
		"queued send of another":          {"list", func(e *Engine) { queuedTo(e, 0).peer = 1 }},
		"queued read of another":          {"list", func(e *Engine) { op := e.reads.entries[0].op; op.read.src = 1; e.peers[0].readq.push(op) }},
		"nothing was taken back":          {"list", func(e *Engine) { op := e.reads.entries[0].op; e.peers[op.read.src].revoked.push(op) }},
		"queued bytes miscounted":         {"list", func(e *Engine) { e.backlog.bytes++ }},
		"posts miscounted":                {"list", func(e *Engine) { e.backlog.posts++ }},
		"unmet peer to be posted to":      {"V18", func(e *Engine) { e.peers[0].met = false }},
		"queued send with another number": {"list", func(e *Engine) { queuedTo(e, 0).handle++ }},
		"queued send has ended":           {"list", func(e *Engine) { queuedTo(e, 0).state = opEnded }},
		"lost peer has a queue": {"list", func(e *Engine) {
			unkeep(e)
			e.peers[0].lost = ErrPeerLost
			e.sends = slots{}
		}},
		"lost peer has a send": {"list", func(e *Engine) {
			unkeep(e)
			e.peers[0].lost = ErrPeerLost
		}},
		"credit given back too early": {"credit", func(e *Engine) { e.peers[0].in.Consume(1) }},
		"credit not counted":          {"credit", func(e *Engine) { r := e.memory.Receiver(0); r.Open() }},
		"receive that was not named":  {"V18", func(e *Engine) { e.peers[0].in.Held(flow.Held{Episode: 1, Allowed: 1 << 60}) }},
		"held up, and nobody is told": {"V18", func(e *Engine) { e.peers[0].dirty, e.dirty = false, nil }},
		"sources miscounted":          {"V5", func(e *Engine) { e.fromAny++ }},
		"receive lost and not counted": {"V5", func(e *Engine) {
			op := opOf(e, 20)
			e.posted.Remove(op.handle)
			e.peers[op.peer].from--
		}},
		"name of no read": {"list", func(e *Engine) {
			op := e.reads.entries[0].op
			e.reads.by = map[request]*Op{op.read.request(): op, {}: nil}
		}},
		"read without its name":      {"list", func(e *Engine) { e.reads.by = map[request]*Op{} }},
		"Message under another name": {"list", func(e *Engine) { e.held = map[request]*Message{{src: 1, appCtx: 5}: {}} }},
		"messages not looked at":     {"V18", func(e *Engine) { e.peers[0].foreign = true }},
		"call of Room that is none":  {"list", func(e *Engine) { e.backlog.rooms = []*Op{opOf(e, 20)} }},
	}, func(e *Engine) { listCheck{e}.all() })
}

// A long list is checked now and then, unless that is not enough.
func TestLongListIsChecked(t *testing.T) {
	_, e := busy(t)
	for tag := range uint64(checkSmall) {
		e.Irecv(0, 100+tag, exact, make([]byte, 8))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sends.used++
	e.inv.idle = 0
	require.NotPanics(t, func() { e.inv.polled(e, 1) })
	require.NotPanics(t, func() { e.inv.polled(e, 0) })
	invarianttest.Thorough(t)
	broken(t, "slot", func() { e.inv.polled(e, 0) })
}

// Of many receives in the device one check looks at some, unless that is not enough.
func TestOverlapIsCheckedFarIn(t *testing.T) {
	const receives, overlapped = 150, 140
	e := doomed(t, 2, fakeOpts{tags: receives}).e[1]
	for tag := range uint64(receives) {
		e.Irecv(0, tag, exact, make([]byte, 8))
	}
	require.Equal(t, receives, e.off.entries)
	e.off.least = 100
	e.Irecv(0, receives, exact, make([]byte, 8)) // stays in software
	e.mu.Lock()
	defer e.mu.Unlock()
	op := e.off.slots.entries[overlapped].op
	op.tag, op.note.order = receives, 1<<20
	e.inv.looked = 0
	for range overlapped / overlapLook {
		require.NotPanics(t, func() { e.off.checkOverlap(e.posted) })
	}
	broken(t, "V6", func() { e.off.checkOverlap(e.posted) })
	e.inv.looked = 0
	invarianttest.Thorough(t)
	broken(t, "V6", func() { e.off.checkOverlap(e.posted) })
}

// reorder puts a receive to the end of the posted-receive queue.
func reorder(e *Engine, op *Op) {
	e.posted.Remove(op.handle)
	op.handle = e.posted.Post(op.tag, op.mask, op)
	e.off.since = e.posted.NextSeq()
}

// post posts a receive as Irecv does, without the search.
func post(e *Engine, tag uint64) {
	e.newOpLocked(noteRecv, 0, tag, exact, nil).post()
}

// requeue does with an unexpected request what a receive does that is cancelled while it reads.
func requeue(e *Engine, tag uint64) {
	m, _ := e.unexp.Match(tag, exact)
	r := readState{src: int(m.Src), appCtx: m.Name, seq: m.Seq}
	e.peers[m.Src].drop(m)
	e.unexp.Requeue(r.src, tag, r.seq, r.unmatched())
}

func startDel(e *Engine) { opOf(e, 20).del(ErrCanceled) }

func cancellingOp(e *Engine) *Op {
	for _, en := range e.off.slots.entries {
		if en.op != nil && en.op.state == opCancelling {
			return en.op
		}
	}
	return nil
}

// What is checked at the moment it happens.
func TestEventsAreChecked(t *testing.T) {
	breaches(t, map[string]breach{
		"counted before it is queued":       {"V8", func(e *Engine) { (*sink)(e).count(0) }},
		"device told too much":              {"V8", func(e *Engine) { e.off.report(e.off.handled + 1) }},
		"device told less than before":      {"V8", func(e *Engine) { e.off.report(e.off.handled); e.off.report(e.off.handled - 1) }},
		"operation before the forced DEL":   {"V9", func(e *Engine) { op := opOf(e, 20); found(e, op); e.off.report(e.off.handled) }},
		"forced DEL missing":                {"V9", func(e *Engine) { found(e, opOf(e, 20)); found(e, opOf(e, 21)) }},
		"forced DEL of what nobody found":   {"V9", func(e *Engine) { e.inv.dropped(slotOf(1)) }},
		"receive leaves the device twice":   {"V12", func(e *Engine) { s := opOf(e, 20).slot; e.off.release(s); e.off.release(s) }},
		"name used again in the device":     {"V13", func(e *Engine) { op := opOf(e, 22); op.slot = opOf(e, 20).slot; op.move(opOffloaded) }},
		"request without a region":          {"V16", func(e *Engine) { op := queuedTo(e, 0); op.region = nil; op.move(opRequested) }},
		"match of what comes another way":   {"V17", func(e *Engine) { e.peers[0].foreign = true; opOf(e, 20).move(opMatched) }},
		"DEL of what is not offloaded":      {"state", func(e *Engine) { opOf(e, 22).del(ErrCanceled) }},
		"operation left when all is closed": {"completion", func(e *Engine) { e.inv.closed(e) }},
		"slot taken when all is closed":     {"slot", func(e *Engine) { e.inv.live = nil; e.inv.closed(e) }},
		"operation freed without a record": {"pool", func(e *Engine) {
			op := opOf(e, 20)
			delete(e.inv.live, op.note)
			op.buf, op.state = nil, opEnded
			op.free()
		}},
		"loss leaves a send": {"list", func(e *Engine) {
			e.peers[0].readq = opList{}
			e.peers[0].checkLost()
		}},
		"loss leaves a read": {"list", func(e *Engine) {
			op := queuedTo(e, 0)
			e.peers[0].out = flow.Sender[Op]{}
			e.peers[0].readq.push(op)
			e.peers[0].checkLost()
		}},
	}, nil)
}

// found is what an unexpected message does with a receive in the device, but for the forced DEL.
func found(e *Engine, op *Op) {
	e.posted.Remove(op.handle)
	e.off.unposted(op)
	e.inv.settle(e, 0)
	e.off.handled++
}

// The rules hold in an engine that nobody has spoilt, also while messages are being requeued and
// cancelling.
func TestRulesHold(t *testing.T) {
	c, e := busy(t)
	e.mu.Lock()
	listCheck{e}.all()
	e.mu.Unlock()
	c.callback(0, func(s transport.Sink) { s.PeerLost(1, nil) })
	c.callback(1, func(s transport.Sink) { s.PeerLost(0, nil) })
	c.net.nodes[1].holdRds = false
	c.step()
	for _, e := range c.e {
		e.mu.Lock()
		listCheck{e}.all()
		e.mu.Unlock()
	}
}
