package flow

import (
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
)

// A world is two ranks with a Sender and a Receiver, the connection between them, which has little
// room, and a program that sends, receives and cancels. It does with both machines what the engine
// does. Messages have tag 1 or 2 and cost 1, of which the window has room for one.
type world struct {
	limits limits
	left   limits // of what the program may still do
	named  int    // 1 once the program has named a tag: the first is 1, as both are alike
	window uint64 // that the receiver gives when they connect
	met    bool   // they are connected

	// The sending rank.
	s      Sender[message]
	sent   int  // messages by the program
	sDirty bool // there was no room for what it had to post

	// The connection, in order each way. What a grant stores lands some time later.
	toReceiver []packet
	toSender   []Want
	stored     uint64
	landed     uint64

	// The receiving rank.
	m          *Memory
	r          Receiver
	receives   []receive
	rDirty     bool
	unexpected []*message
	received   int  // number of the newest message
	excess     bool // it asked for more than it has granted
	pointless  int  // WANTs that were told for receives that ended without their message, and that have cost nothing

	fault string
}

// limits bounds what a program does.
type limits struct {
	sends, receives, cancels int // messages, receives, sends that are cancelled
	ends                     int // receives that end without a message of this sender
	probes                   int
	slots                    int
}

type message struct {
	number int
	tag    uint64
	place  uint64 // in the queue
	wanted bool   // it uses up a WANT
}

// packet is a message, or HELD.
type packet struct {
	m    *message
	held Held
}

type receive struct {
	tag, mask uint64
	state     state
	told      bool // a WANT was told for it
}

type state uint8

const (
	waiting    state = iota
	cancelling       // cancelled, and in a device, which has not answered: it may take a message
	ended
)

const room = 2

func newWorld(l limits) *world {
	w := &world{limits: l, left: l}
	w.m = NewMemory(credit.NewPool(2, 1, 1, 1), func(h matching.Handle) bool { return h != 0 && w.receives[h-1].state == waiting })
	w.m.slots = l.slots
	w.r = w.m.Receiver(0)
	w.s.Init(1)
	w.window = w.r.Open()
	return w
}

// step is one thing that can happen; which says what it happens to.
type step struct {
	do    func(w *world, which int)
	name  string
	which int
}

// steps are all that can happen now.
func (w *world) steps() (all []step) {
	add := func(ok bool, name string, which int, do func(w *world, which int)) {
		if ok {
			all = append(all, step{do, name, which})
		}
	}
	for tag := 1; tag <= 1+w.named; tag++ {
		add(w.left.sends > 0, "send", tag, (*world).send)
	}
	for tag := range 2 + w.named {
		add(w.left.receives > 0, "receive", tag, (*world).post)
	}
	i := 0
	for range w.s.Sends() {
		add(w.left.cancels > 0, "cancel", i, (*world).cancel)
		i++
	}
	for i, r := range w.receives {
		add(w.left.ends > 0 && r.state == waiting, "end", i, (*world).end)
		add(w.left.ends > 0 && r.state == waiting, "cancel in the device", i, (*world).cancelInDevice)
		add(r.state == cancelling, "cancelling", i, (*world).answer)
	}
	for tag := 1; tag <= 1+w.named; tag++ {
		add(w.left.probes > 0, "probe", tag, (*world).probe)
	}
	add(!w.met, "connect", 0, (*world).connect)
	add(w.landed != w.stored, "land", 0, func(w *world, _ int) { w.landed = w.stored })
	add(len(w.toReceiver) != 0, "arrive", 0, (*world).arrive)
	add(len(w.toSender) != 0, "wanted", 0, (*world).wanted)
	add(w.sDirty && len(w.toReceiver) < room, "post again", 0, (*world).postAgain)
	add(w.rDirty && len(w.toSender) < room, "tell again", 0, (*world).tellAgain)
	return all
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// The sending rank.

func (w *world) covers() bool {
	if !w.s.Covers(1) {
		w.s.Allow(w.landed)
	}
	return w.s.Covers(1)
}

func (w *world) send(tag int) {
	w.left.sends--
	w.named = 1
	w.sent++
	m := &message{number: w.sent, tag: uint64(tag)}
	if w.s.Empty() && w.covers() && len(w.toReceiver) < room {
		w.s.Charge(1)
		w.toReceiver = append(w.toReceiver, packet{m: m})
		return
	}
	place, next := w.s.Push(m.tag, m)
	if m.place = place; next {
		w.pump()
	}
}

// connect comes before everything else that crosses the connection.
func (w *world) connect(int) {
	w.met = true
	w.s.Allow(w.window)
	w.pump()
}

func (w *world) pump() {
	for w.met && !w.s.Empty() {
		m := w.s.First()
		if !w.covers() && !w.s.Permitted() {
			if w.s.Hold() {
				w.tellHeld()
			}
			return
		}
		if len(w.toReceiver) == room {
			w.sDirty = true
			return
		}
		w.s.Remove(m.place)
		m.wanted = !w.s.all && slices.ContainsFunc(w.s.wants, func(v Want) bool { return matches(v.Tag, v.Mask, m.tag) })
		w.s.Sent(m.tag, 1)
		w.toReceiver = append(w.toReceiver, packet{m: m})
	}
	if w.s.Empty() && w.s.Drained() {
		w.tellHeld()
	}
}

func (w *world) tellHeld() {
	h, due := w.s.Due()
	switch {
	case !due:
	case len(w.toReceiver) == room:
		w.sDirty = true
	default:
		w.s.Told()
		w.toReceiver = append(w.toReceiver, packet{held: h})
	}
}

func (w *world) postAgain(int) {
	w.sDirty = false
	w.tellHeld()
	w.pump()
}

func (w *world) cancel(i int) {
	w.left.cancels--
	for m := range w.s.Sends() {
		if i == 0 {
			w.s.Remove(m.place)
			break
		}
		i--
	}
	w.pump()
}

func (w *world) wanted(int) {
	w.s.Want(w.toSender[0])
	w.toSender = w.toSender[1:]
	if w.s.Wants() > w.limits.slots {
		w.fail("the sender knows %d WANTs of %d slots", w.s.Wants(), w.limits.slots)
	}
	if w.s.HeldUp() {
		w.pump()
	}
}

// The receiving rank.

func (w *world) settled() bool {
	return !slices.ContainsFunc(w.receives, func(r receive) bool { return r.state == cancelling })
}

// post posts a receive; tag 0 is any.
func (w *world) post(tag int) {
	w.left.receives--
	r := receive{tag: uint64(tag), mask: 3}
	if tag == 0 {
		r.mask = 0
	} else {
		w.named = 1
	}
	if i := slices.IndexFunc(w.unexpected, func(m *message) bool { return matches(r.tag, r.mask, m.tag) }); i >= 0 {
		w.unexpected = slices.Delete(w.unexpected, i, i+1)
		r.state = ended
		w.receives = append(w.receives, r)
		w.consume()
		return
	}
	w.receives = append(w.receives, r)
	if w.r.Post(matching.Handle(len(w.receives)), r.tag, r.mask) {
		w.tell()
	}
}

// probe looks for a message, as a probe that does not block.
func (w *world) probe(tag int) {
	w.left.probes--
	w.named = 1
	found := slices.ContainsFunc(w.unexpected, func(m *message) bool { return m.tag == uint64(tag) })
	if !found && w.r.Probe(uint64(tag), 3) {
		w.tell()
	}
}

func (w *world) finish(i int, wanted bool) {
	r := &w.receives[i]
	r.state = ended
	if r.told && !wanted {
		w.pointless++
	}
}

func (w *world) end(i int) {
	w.left.ends--
	w.finish(i, false)
}

func (w *world) cancelInDevice(i int) {
	w.left.ends--
	w.receives[i].state = cancelling
}

func (w *world) answer(i int) {
	w.finish(i, false)
	w.settle()
}

// settle follows the end of a receive that was being cancelled.
func (w *world) settle() {
	if w.settled() && w.r.HeldUp() {
		w.tell()
	}
}

func (w *world) consume() {
	if w.r.Consume(1) {
		w.grant()
		if r := w.m.Grow(); r != nil {
			w.grant()
		}
	}
}

func (w *world) grant() {
	if w.r.Renew() {
		w.tell()
	}
}

func (w *world) tell() {
	if !w.r.HeldUp() {
		if allowed, due := w.r.Grant(); due {
			w.stored = allowed
		}
		return
	}
	for {
		want, due := w.r.Due(w.settled())
		if !due {
			return
		}
		if len(w.toSender) == room {
			w.rDirty = true
			return
		}
		w.r.Told(want)
		w.excess = w.excess || want.Slot != None
		if want.Slot < Slots && w.r.wants[want.Slot].handle != 0 {
			w.receives[w.r.wants[want.Slot].handle-1].told = true
		}
		w.toSender = append(w.toSender, want)
	}
}

func (w *world) tellAgain(int) {
	w.rDirty = false
	w.tell()
}

func (w *world) arrive(int) {
	p := w.toReceiver[0]
	w.toReceiver = w.toReceiver[1:]
	if p.m == nil {
		w.held(p.held)
		return
	}
	m := p.m
	if m.number <= w.received {
		w.fail("message %d comes behind %d", m.number, w.received)
	}
	w.received = m.number
	w.r.Arrived(m.tag)
	if !w.r.Charge(1) {
		w.fail("message %d was neither covered nor wanted", m.number)
	}
	i := slices.IndexFunc(w.receives, func(r receive) bool { return r.state != ended && matches(r.tag, r.mask, m.tag) })
	if i < 0 {
		w.unexpected = append(w.unexpected, m)
		if m.wanted && w.limits.probes == 0 {
			if w.pointless--; w.pointless < 0 {
				w.fail("message %d went beyond the bound for no receive", m.number)
			}
		}
		if w.r.Short() && w.r.Grow() {
			w.grant()
		}
		return
	}
	was := w.receives[i].state
	w.finish(i, m.wanted)
	w.consume()
	if was == cancelling {
		w.settle()
	}
}

func (w *world) held(h Held) {
	w.excess = w.excess && !(odd(h.Episode) && h.Charged <= w.r.Granted())
	w.r.Held(h)
	if !w.r.HeldUp() {
		return
	}
	for i, r := range w.receives {
		if w.r.All() {
			break
		}
		if r.state == waiting {
			w.r.Post(matching.Handle(i+1), r.tag, r.mask)
		}
	}
	w.tell()
}
