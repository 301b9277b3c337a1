package verbstest

import (
	"sync"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// testArmWait: each message wakes a receiver that sleeps. Each end has its own goroutine.
func testArmWait(e *env, a, b *node) {
	ch, cq := b.sleepyCQ(e)
	qa, qb := e.connect(a, b, qpConf{}, qpConf{cq: cq})
	const rounds = 200
	var wg sync.WaitGroup
	step := make(chan struct{}, 1) // starts the poll in which the receiver acknowledges
	wg.Go(func() { receiveParked(e.t, b.dev, ch, cq, qb, rounds, step) })
	for i := range rounds {
		select {
		case <-step:
		case <-time.After(patience):
			e.t.Errorf("round %d: the receiver does not get ready", i)
			ch.Wake()
			wg.Wait()
			return
		}
		a.send(qa, inline(uint64(i), verbs.SendSignaled, nil))
		b.dead = true // the receiver polls for itself
		a.want(uint64(i), verbs.WCSuccess)
	}
	wg.Wait()
}

// receiveParked receives rounds messages and sleeps before each. It sends to step before it does.
func receiveParked(t *testing.T, dev verbs.Device, ch verbs.CompChannel, cq verbs.CQ, qp verbs.QP, rounds int, step chan<- struct{}) {
	var wc [4]verbs.WC
	for i := range rounds {
		if _, err := qp.PostRecv(&verbs.RecvWR{WRID: uint64(i)}); err != nil {
			t.Error(err)
			return
		}
		step <- struct{}{}
		for got := 0; got == 0; {
			if err := cq.Arm(false); err != nil {
				t.Error(err)
				return
			}
			n, err := Poll(cq, wc[:])
			if err != nil {
				t.Error(err)
				return
			}
			if got = n; n == 0 {
				if letGo(dev, func() { err = ch.Wait() }); err != nil {
					t.Error(err)
					return
				}
			}
		}
		if i%2 == 0 {
			cq.Disarm()
		}
	}
	for range 2000 { // send the last acknowledgement
		letGo(dev, func() {})
		if _, err := Poll(cq, wc[:]); err != nil {
			t.Error(err)
		}
	}
}

// testChannelClose: Wake and Close end a Wait.
func testChannelClose(e *env, n *node) {
	ch, err := n.dev.CreateCompChannel()
	e.ok(err)
	ch.Wake()
	e.ok(ch.Wait())
	ended := make(chan error)
	go func() {
		for {
			if err := ch.Wait(); err != nil {
				ended <- err
				return
			}
		}
	}()
	e.ok(ch.Close())
	select {
	case <-ended:
	case <-time.After(patience):
		e.t.Error("Wait goes on after Close")
	}
}

// testPeerDestroysQP: a QP fails when its peer is destroyed.
func testPeerDestroysQP(e *env, a, b *node, qa, qb verbs.QP) {
	a.send(qa, inline(1, verbs.SendSignaled, nil)) // RNR at the peer
	a.send(qa, inline(2, verbs.SendSignaled, nil))
	a.none()
	b.destroy(qb)
	a.want(1, verbs.WCRetryExcErr)
	a.want(2, verbs.WCWRFlushErr)
	if !e.opts.Silent {
		a.wantFailure(verbs.EventQPFatal, qa)
	}
}

func testPeerCloses(e *env, a, b, c *node) {
	q1, _ := e.connect(a, b, qpConf{}, qpConf{})
	q2, _ := e.connect(a, b, qpConf{}, qpConf{})
	q3, p3 := e.connect(a, c, qpConf{}, qpConf{})
	c.recv(p3, 1, nil)
	for _, q := range []verbs.QP{q1, q2} {
		a.send(q, inline(uint64(q.Num()), verbs.SendSignaled, nil))
	}
	e.settle()
	b.shut()
	for range 2 {
		if w := a.next(); w.Status != verbs.WCRetryExcErr {
			e.t.Errorf("%+v", w)
		}
		a.wantEvent(verbs.EventQPFatal)
	}
	a.send(q3, inline(7, verbs.SendSignaled, nil)) // others go on
	a.want(7, verbs.WCSuccess)
	c.want(1, verbs.WCSuccess)
	if state(q3) != verbs.QPSRTS {
		e.t.Errorf("an uninvolved QP is in %v", state(q3))
	}
}
