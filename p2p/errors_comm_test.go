package p2p_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestErrorTextsOfComms: the text of an error of a Comm whose ranks are not the World's says whose
// ranks it names, whichever call it is of. The fields, and all other texts, are as ever.
func TestErrorTextsOfComms(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		defer w.Close()
		same := split(t, w.Comm(), 0, 0)             // the ranks of the World, in their order
		c := split(t, w.Comm(), min(w.Rank(), 1), 0) // {0} and {1, 2}
		barrier(t, w.Comm())
		if w.Rank() != 2 {
			return // a loss: rank 1 is 0 in c
		}
		lost := second(c.Recv(background, 0, 1, nil))
		var op *p2p.OpError
		var peer *p2p.PeerError
		if assert.ErrorAs(t, lost, &op) && assert.ErrorAs(t, lost, &peer) {
			assert.Zero(t, op.Rank)
			assert.Equal(t, []int{1}, peer.Ranks)
		}
		assert.ErrorContains(t, second(same.Recv(background, 1, 1, nil)), "p2p: recv from 1, tag 0x1: rank 1 lost: it has closed")
		assert.ErrorContains(t, w.Comm().Send(background, 1, 1, nil), "p2p: send to 1, tag 0x1: rank 1 lost: it has closed")
		const peerText, reason = " 0 (rank 1 of the World), tag 0x1: ", "rank 1 of the World lost: it has closed its World"
		for _, err := range sendErrors(c, 0, 1) {
			assert.ErrorContains(t, err, "p2p: send to"+peerText+reason)
		}
		for op, err := range recvErrors(c, 0, 1) {
			assert.ErrorContains(t, err, "p2p: "+op+" from"+peerText+reason)
		}
		for op, err := range recvErrors(c, p2p.AnySource, p2p.AnyTag) {
			assert.ErrorContains(t, err, "p2p: "+op+" from any, any tag: "+reason)
		}
	})
}

// sendErrors and recvErrors are the errors of calls with this peer.
func sendErrors(c *p2p.Comm, dst int, tag p2p.Tag) []error {
	_, both := c.Sendrecv(background, dst, tag, nil, p2p.ProcNull, tag, nil)
	return []error{
		c.Send(background, dst, tag, nil), c.Ssend(background, dst, tag, nil), both,
		second(c.Isend(dst, tag, nil).Wait(background)), second(c.Issend(dst, tag, nil).Wait(background)),
		reported(c.World(), c.Isend(dst, tag, nil)),
		second(c.IsendAll(nil, []p2p.Transfer{{Rank: dst, Tag: tag}})[0].Wait(background)),
	}
}

func recvErrors(c *p2p.Comm, src int, tag p2p.Tag) map[string]error {
	_, mprobe := c.Mprobe(background, src, tag)
	return map[string]error{"recv": reported(c.World(), c.Irecv(src, tag, nil)), "probe": second(c.Probe(background, src, tag)), "mprobe": mprobe}
}

// reported is the error of a request that a Queue reports.
func reported(w *p2p.World, r p2p.Request) error {
	q := w.NewQueue(1)
	defer q.Close()
	r.Notify(q, 0)
	var cs [1]p2p.Completion
	if _, err := q.Wait(background, cs[:]); err != nil {
		return err
	}
	return cs[0].Err
}

// TestErrorTextsOfArguments: what refuses the arguments of a call on such a Comm names the peer
// too, where there is one.
func TestErrorTextsOfArguments(t *testing.T) {
	ended, cancel := context.WithCancel(background)
	cancel()
	p2ptest.Run(t, 2, func(w *p2p.World) {
		c := split(t, w.Comm(), 0, -w.Rank()) // {1, 0}
		p := c.RecvInit(0, 1, nil)
		r := p.Start()
		_, _, limit := c.RecvAlloc(background, 0, 1, -1)
		const peer = " 0 (rank 1 of the World), tag 0x1: "
		for want, err := range map[string]error{
			"p2p: recv from" + peer + "context canceled":                        second(c.Recv(ended, 0, 1, nil)),
			"p2p: send to" + peer + "context canceled":                          c.Send(ended, 0, 1, nil),
			"p2p: recv from" + peer + "invalid argument: the limit is -1":       limit,
			"p2p: recv from" + peer + "invalid argument: the request of":        second(p.Start().Wait(background)),
			"p2p: send to 0 (rank 1 of the World), tag 0x100000000: invalid":    c.Send(background, 0, p2p.MaxCommTag+1, nil),
			"p2p: send to 2, tag 0x1: invalid argument: rank 2 is out of range": c.Send(background, 2, 1, nil),
			"p2p: recv from -7, tag 0x1: invalid argument: rank -7 is out of":   second(c.Recv(background, -7, 1, nil)),
		} {
			assert.ErrorContains(t, err, want)
		}
		r.Cancel()
		assert.ErrorContains(t, second(r.Wait(background)), "p2p: recv from"+peer+"operation canceled")
	})
}

// TestErrorTextsOfAborts: who aborts the job is a rank of the World, and so it says on each rank.
func TestErrorTextsOfAborts(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		defer w.Close()
		c := split(t, w.Comm(), 0, -w.Rank()) // {1, 0}
		if w.Rank() == 1 {
			assert.NoError(t, c.Send(background, 1, 2, nil)) // this rank has its Comm
		} else {
			assert.NoError(t, second(c.Recv(background, 0, 2, nil)))
			w.Abort(3, "by rank 7 of the input")
		}
		const reason = "job aborted: by rank 0 of the World with code 3: by rank 7 of the input"
		assert.EqualError(t, second(c.Recv(background, p2p.AnySource, 1, nil)), "p2p: recv from any, tag 0x1: "+reason)
		assert.EqualError(t, second(c.Recv(background, 1, 1, nil)), "p2p: recv from 1 (rank 0 of the World), tag 0x1: "+reason)
		assert.EqualError(t, second(w.Comm().Recv(background, 1, 1, nil)),
			"p2p: recv from 1, tag 0x1: job aborted: by rank 0 with code 3: by rank 7 of the input")
	})
}
