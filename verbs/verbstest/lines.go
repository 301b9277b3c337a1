package verbstest

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// lineRules are the rules of package verbs for lines.
var lineRules = []testCase{
	{"api/reaches", anyDevice, testReaches,
		"Reaches names a wire to each other device and to itself, and refuses what is no address"},
	{"api/line-order", anyDevice, testLineOrder,
		"what two devices tell each other comes once and in order, with the sender's address, if both begin at once too"},
	{"api/line-limits", anyDevice, testLineLimits,
		"messages of no bytes and of more than MaxTell, bad addresses and the own one: EINVAL; a closed device: EBADF"},
	{"api/line-unpolled", anyDevice, testLineUnpolled,
		"of one device 16 messages wait for PollTold; one more ends the line behind them, by a violation"},
	{"api/line-again", anyDevice, testLineAgain,
		"a Tell after the end of a line makes another one"},
	{"api/line-end", anyDevice, testLineEnd,
		"the end of a line is told once, behind its messages, and its queue pairs fail with the cause; others go on"},
	{"api/line-missed", anyDevice, testLineMissed,
		"a queue pair whose peer fails before it is connected holds up no line, and fails once it is connected"},
	{"api/line-wakes", anyDevice, testLineWakes,
		"each message, and the end of a line, wakes who sleeps"},
	{"api/drain-tells", anyDevice, testDrainTells,
		"the handler of a completion may tell"},
}

// tell tells message i, whose size depends on i.
func (n *node) tell(to *node, i int) {
	n.e.t.Helper()
	n.e.ok(n.dev.Tell(to.dev.Address(), note(i)))
}

// note is message i.
func note(i int) []byte {
	return bytes.Repeat([]byte{byte(i)}, 1+i*37%verbs.MaxTell)
}

// heard takes the next message or end.
func (n *node) heard() verbs.Told {
	n.e.t.Helper()
	n.e.until("a message on "+n.dev.Name(), func() bool { return len(n.told) > 0 })
	t := n.told[0]
	n.told = n.told[1:]
	return t
}

// wantNote takes the next message, which is i.
func (n *node) wantNote(from *node, i int) {
	n.e.t.Helper()
	if err := isNote(n.heard(), from.dev, i); err != nil {
		n.e.t.Fatal(err)
	}
}

func isNote(t verbs.Told, from verbs.Device, i int) error {
	if !bytes.Equal(t.From, from.Address()) || !bytes.Equal(t.Msg, note(i)) || t.Err != nil {
		return fmt.Errorf("told %d bytes, %v, where message %d belongs", len(t.Msg), t.Err, i)
	}
	return nil
}

// wantEnd takes the end of the line, and checks its cause.
func (n *node) wantEnd(from *node, cause error) {
	n.e.t.Helper()
	if err := isEnd(n.heard(), from.dev, cause); err != nil {
		n.e.t.Fatal(err)
	}
}

func isEnd(t verbs.Told, from verbs.Device, cause error) error {
	if !bytes.Equal(t.From, from.Address()) || t.Msg != nil || !errors.Is(t.Err, cause) {
		return fmt.Errorf("told %d bytes, %v, where the end of the line belongs: %w", len(t.Msg), t.Err, cause)
	}
	return nil
}

// silent checks that nothing is told.
func (n *node) silent() {
	n.e.t.Helper()
	n.e.settle()
	if len(n.told) > 0 {
		n.e.t.Fatalf("told %+v", n.told[0])
	}
}

func testReaches(e *env, a, b *node) {
	for _, to := range []verbs.Device{a.dev, b.dev} {
		wire, err := a.dev.Reaches(to.Address())
		e.ok(err)
		if wire == "" {
			e.t.Error("the wire has no name")
		}
	}
	_, err := a.dev.Reaches(nil)
	e.errno(err, syscall.EINVAL)
	_, err = a.dev.Reaches(append(bytes.Clone(b.dev.Address()), 0))
	e.errno(err, syscall.EINVAL)
	a.silent()
	b.silent()
}

func testLineOrder(e *env, a, b *node) {
	const messages, window = 300, 16
	said, got := [2]int{}, [2]int{}
	e.until("all messages", func() bool {
		for i, n := range []*node{a, b} {
			peer := e.nodes[1-i]
			for _, t := range n.told {
				e.ok(isNote(t, peer.dev, got[i]))
				got[i]++
			}
			n.told = nil
		}
		for i, n := range []*node{a, b} {
			for ; said[i] < min(messages, got[1-i]+window); said[i]++ {
				n.tell(e.nodes[1-i], said[i])
			}
		}
		return got[0]+got[1] == 2*messages
	})
	a.silent()
	b.silent()
}

func testLineLimits(e *env, a, b *node) {
	for _, size := range []int{0, verbs.MaxTell + 1} {
		e.errno(a.dev.Tell(b.dev.Address(), make([]byte, size)), syscall.EINVAL)
	}
	e.errno(a.dev.Tell(a.dev.Address(), note(0)), syscall.EINVAL)
	e.errno(a.dev.Tell(nil, note(0)), syscall.EINVAL)
	e.errno(a.dev.Tell(b.dev.Address()[1:], note(0)), syscall.EINVAL)
	b.silent()
	msg := make([]byte, verbs.MaxTell)
	to := bytes.Clone(b.dev.Address())
	e.ok(a.dev.Tell(to, msg))
	for _, s := range [][]byte{msg, to} { // both were copied
		for i := range s {
			s[i] = 0xee
		}
	}
	if t := b.heard(); !bytes.Equal(t.Msg, make([]byte, verbs.MaxTell)) {
		e.t.Errorf("told %+v", t)
	}
	a.shut()
	e.errno(a.dev.Tell(b.dev.Address(), note(0)), syscall.EBADF)
	if t, ok := a.dev.PollTold(); ok {
		e.t.Errorf("a closed device was told %+v", t)
	}
}

// overhear has b be told one message more than a device keeps, and both hear of the end.
func overhear(e *env, a, b *node) {
	e.t.Helper()
	const most = 16
	a.tell(b, 0)
	b.wantNote(a, 0) // the line is there
	b.deaf = true
	for i := range most {
		a.tell(b, i)
	}
	a.silent() // that many are legal
	a.tell(b, most)
	a.wantEnd(b, verbs.ErrAccused)
	b.deaf = false
	for i := range most {
		b.wantNote(a, i)
	}
	b.wantEnd(a, verbs.ErrProtocol)
}

func testLineUnpolled(e *env, a, b *node) {
	overhear(e, a, b)
	a.silent()
	b.silent()
}

func testLineAgain(e *env, a, b *node) {
	for i, n := range []*node{a, b} {
		overhear(e, a, b)
		peer := e.nodes[1-i]
		n.tell(peer, 7)
		peer.wantNote(n, 7)
		peer.tell(n, 8)
		n.wantNote(peer, 8)
		overhear(e, a, b)
	}
}

// testLineEnd: the queue pairs of a have sent nothing.
func testLineEnd(e *env, a, b, c *node) {
	const nobody = 77 // b has no such queue pair, so that only the line tells of b's end
	lone, other := a.newQP(qpConf{}), a.newQP(qpConf{})
	a.raise(lone, b.dev, nobody, qpConf{})
	a.raise(other, c.dev, nobody, qpConf{})
	a.tell(c, 1)
	c.wantNote(a, 1)
	for i := range 3 {
		b.tell(a, i)
	}
	e.settle()
	a.tell(b, 5)
	b.wantNote(a, 5)
	b.shut()
	for i := range 3 {
		a.wantNote(b, i)
	}
	a.wantEnd(b, verbs.ErrPeerClosed)
	if ev := a.wantEvent(verbs.EventQPFatal); ev.QP != lone.Num() || !errors.Is(ev.Err, verbs.ErrPeerClosed) {
		e.t.Errorf("%+v", ev)
	}
	if state(lone) != verbs.QPSErr || state(other) != verbs.QPSRTS {
		e.t.Errorf("the queue pairs are in %v and %v", state(lone), state(other))
	}
	a.silent()
	if err := a.dev.Tell(b.dev.Address(), note(6)); err == nil {
		if t := a.heard(); t.Msg != nil || t.Err == nil {
			e.t.Errorf("told %+v of a device that is closed", t)
		}
	} else {
		e.errno(err, syscall.EHOSTUNREACH)
	}
	c.tell(a, 2)
	a.wantNote(c, 2)
}

func testLineMissed(e *env, a, b *node) {
	for i, fail := range []func(qa verbs.QP){
		a.destroy,
		func(qa verbs.QP) { e.ok(qa.Modify(stateAlone(verbs.QPSErr))) },
	} {
		qa, qb := a.newQP(qpConf{}), b.newQP(qpConf{})
		e.ok(qb.Modify(initAttr(allAccess)))
		a.raise(qa, b.dev, qb.Num(), qpConf{})
		fail(qa)
		e.settle()
		a.tell(b, i)
		b.wantNote(a, i)
		e.ok(qb.Modify(rtrAttr(a.dev, qa.Num())))
		e.ok(qb.Modify(rtsAttr(7)))
		if !e.opts.Silent {
			b.wantFailure(verbs.EventQPFatal, qb)
		}
		b.send(qb, inline(1, 0, nil))
		if w := b.next(); w.Status != verbs.WCRetryExcErr && w.Status != verbs.WCWRFlushErr {
			e.t.Errorf("%+v", w)
		}
	}
}

func testLineWakes(e *env, a, b *node) {
	ch, cq := b.sleepyCQ(e)
	const rounds = 50
	ready, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for i := range rounds + 1 {
			ready <- struct{}{}
			told, err := hearParked(b.dev, ch, cq)
			if err == nil && i < rounds {
				err = isNote(told, a.dev, i)
			} else if err == nil {
				err = isEnd(told, a.dev, verbs.ErrPeerClosed)
			}
			if err != nil {
				e.t.Errorf("round %d: %v", i, err)
				return
			}
		}
	}()
	b.dead = true // it polls for itself
	for i := range rounds + 1 {
		e.until("the receiver to get ready", func() bool {
			select {
			case <-ready:
				return true
			case <-done:
				e.t.FailNow()
			default:
			}
			return false
		})
		if i < rounds {
			a.tell(b, i)
		}
	}
	a.shut()
	select {
	case <-done:
	case <-time.After(patience):
		e.t.Error("the end of the line wakes nobody")
		ch.Wake()
		<-done
	}
}

// hearParked sleeps until something is told.
func hearParked(dev verbs.Device, ch verbs.CompChannel, cq verbs.CQ) (verbs.Told, error) {
	var wc [4]verbs.WC
	for {
		if err := cq.Arm(false); err != nil {
			return verbs.Told{}, err
		}
		if _, err := Poll(cq, wc[:]); err != nil {
			return verbs.Told{}, err
		}
		if t, ok := dev.PollTold(); ok {
			cq.Disarm()
			return t, nil
		}
		var err error
		if letGo(dev, func() { err = ch.Wait() }); err != nil {
			return verbs.Told{}, err
		}
	}
}

// teller is a Handler that tells something with each completion.
type teller struct {
	n, to *node
	said  int
}

func (h *teller) Complete(*verbs.WC) bool {
	h.n.tell(h.to, h.said)
	h.said++
	return false
}

func testDrainTells(e *env, a, b *node, qa, qb verbs.QP) {
	const messages = 5
	h := &teller{n: b, to: a}
	b.dead = true // the handler gets its completions
	for i := range uint64(messages) {
		b.recv(qb, i, nil)
		a.send(qa, inline(i, 0, nil))
	}
	e.until("the completions", func() bool {
		letGo(b.dev, func() {})
		_, err := b.cq.Drain(h, 2)
		e.ok(err)
		return h.said == messages && len(a.told) == messages
	})
	for i := range messages {
		a.wantNote(b, i)
	}
}
