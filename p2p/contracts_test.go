package p2p_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// Which test holds the package to its rules of contexts and buffers:
//
//	a nil context is ErrInvalid                  TestWrongArguments, TestProbeArguments,
//	                                             TestQueueArguments, TestWaitsetArguments,
//	                                             TestSendrecvArguments, TestCollectiveErrors
//	one that has ended: nothing is posted        TestEndedContext
//	Shutdown with one that has ended closes      TestShutdownUnderEndedContext
//	a blocking call cancels when it ends         TestCancelRaces, TestSendrecvCanceled,
//	                                             TestProbeContexts, TestDupInterrupted
//	a Recv whose message is matched already      TestCancelMatched, TestCancelMatchedLost
//	a receiver that does not answer              TestDeadlineAgainstIdleRank
//	waiting ends, operations go on               TestEndedWaits, TestContexts, TestWaitAllAgain,
//	                                             TestWaitsetDeadlines
//	the buffer is free after a call or request   TestCancelRaces, TestSendrecvCanceled
//	a send buffer may be read meanwhile          TestOneBufferOfManySends
//	after ErrTruncated: the first bytes          TestTruncated
//	nil and empty buffers                        TestRing, TestPortedMPICHThreads (multisend)
//	any memory                                   TestRegions, TestHugeMessage
//	the library keeps a buffer alive             TestBuffersAreHeld
//	the outer slice of a send is read at once    TestCancelRaces
//	that of a receive is free with its end       TestCancelRaces
//	of a Persistent between starts               TestPersistent, TestPersistentStarts
//	given up by Free                             TestFreed
//	a Message whose Recv ends with its context   TestProbeContexts, TestCancelRaces
//	what a Comm that is closed leaves            TestCloseEndsReceives, TestCloseFreesSenders

// TestEndedContext gives every blocking call a context that has ended: it fails with the context's
// error, and neither sends, receives nor takes anything, though a message waits.
func TestEndedContext(t *testing.T) {
	onWirings(t, 2, p2p.Config{EagerLimit: 1000}, func(t *testing.T, w *p2p.World) {
		c, peer := w.Comm(), 1-w.Rank()
		ctx, cancel := context.WithCancelCause(background)
		cancel(errors.New("the cause"))
		for _, size := range []int{8, 3000} {
			message, buf := pattern(size, w.Rank()), fresh(size)
			raw, inComm := w.Isend(peer, 1, message), c.Isend(peer, 1, message)
			_, err := w.Probe(background, 1, p2p.MaskExact)
			require.NoError(t, err)
			m, err := c.Mprobe(background, peer, 1)
			require.NoError(t, err)
			for name, call := range endedCalls(ctx, w, m, buf) {
				err := call(peer)
				require.ErrorIs(t, err, context.Canceled, name)
				var op *p2p.OpError
				require.ErrorAs(t, err, &op, name)
				require.Equal(t, fresh(size), buf, name)
			}
			for _, err := range []error{
				c.Send(ctx, p2p.ProcNull, 1, nil), second(c.Recv(ctx, p2p.ProcNull, 1, nil)),
				second(c.Probe(ctx, p2p.ProcNull, 1)),
			} {
				require.ErrorIs(t, err, context.Canceled)
			}
			st, err := m.Recv(background, buf)
			require.NoError(t, err)
			requireReceived(t, pattern(size, peer), buf, st, peer, 1)
			st, err = w.Recv(background, 1, p2p.MaskExact, buf)
			require.NoError(t, err)
			requireReceived(t, pattern(size, peer), buf, st, peer, 1)
			require.NoError(t, p2p.WaitAll(background, []p2p.Request{raw, inComm}, nil))
		}
		meetAll(t, w)
		_, found, err := w.Iprobe(0, p2p.MaskAny)
		require.NoError(t, err)
		require.False(t, found, "one of the calls has sent")
		_, found, err = c.Iprobe(p2p.AnySource, p2p.AnyTag)
		require.NoError(t, err)
		require.False(t, found, "one of the calls has sent")
	})
}

// endedCalls are the blocking calls, by name. Of tag 1 w has a message of its own, and one on its
// Comm that m has taken.
func endedCalls(ctx context.Context, w *p2p.World, m *p2p.Message, buf []byte) map[string]func(peer int) error {
	c := w.Comm()
	return map[string]func(peer int) error{
		"Send":       func(peer int) error { return w.Send(ctx, peer, 1, buf) },
		"Ssend":      func(peer int) error { return w.Ssend(ctx, peer, 1, buf) },
		"Comm.Send":  func(peer int) error { return c.Send(ctx, peer, 1, buf) },
		"Comm.Ssend": func(peer int) error { return c.Ssend(ctx, peer, 1, buf) },
		"Recv":       func(int) error { return second(w.Recv(ctx, 1, p2p.MaskExact, buf)) },
		"Comm.Recv":  func(peer int) error { return second(c.Recv(ctx, peer, 1, buf)) },
		"RecvAlloc":  func(int) error { return third(w.RecvAlloc(ctx, 1, p2p.MaskExact, 0)) },
		"Comm.RecvAlloc": func(peer int) error {
			return third(c.RecvAlloc(ctx, peer, 1, 0))
		},
		"Sendrecv": func(peer int) error {
			return second(c.Sendrecv(ctx, peer, 1, buf, peer, 1, buf))
		},
		"Probe":        func(int) error { return second(w.Probe(ctx, 1, p2p.MaskExact)) },
		"Comm.Probe":   func(peer int) error { return second(c.Probe(ctx, peer, 1)) },
		"Mprobe":       func(int) error { _, err := w.Mprobe(ctx, 1, p2p.MaskExact); return err },
		"Comm.Mprobe":  func(peer int) error { _, err := c.Mprobe(ctx, peer, 1); return err },
		"Message.Recv": func(int) error { return second(m.Recv(ctx, buf)) },
	}
}

func third(_ []byte, _ p2p.Status, err error) error { return err }

// TestEndedWaits has all calls that wait for requests end with their context: they give its error,
// and the operations go on.
func TestEndedWaits(t *testing.T) {
	onWirings(t, 2, p2p.Config{EagerLimit: 1000}, func(t *testing.T, w *p2p.World) {
		ctx, cancel := context.WithCancel(background)
		cancel()
		c, peer, q := w.Comm(), 1-w.Rank(), w.NewQueue(1)
		for _, size := range []int{8, 3000} {
			message := pattern(size, w.Rank())
			bufs := [][]byte{fresh(size), fresh(size)}
			queued := c.Irecv(peer, 2, bufs[1])
			reqs := []p2p.Request{c.Irecv(peer, 1, bufs[0])}
			queued.Notify(q, 1)
			out := make([]p2p.Completion, 1)
			for name, wait := range map[string]func() error{
				"Wait":       func() error { return second(reqs[0].Wait(ctx)) },
				"WaitAll":    func() error { return p2p.WaitAll(ctx, reqs, nil) },
				"WaitAny":    func() error { _, _, err := p2p.WaitAny(ctx, reqs); return err },
				"WaitSome":   func() error { _, err := p2p.WaitSome(ctx, reqs, out); return err },
				"Queue.Wait": func() error { _, err := q.Wait(ctx, out); return err },
				"Room":       func() error { return w.Room(ctx) },
			} {
				require.Equal(t, context.Canceled, wait(), name)
				require.NotContains(t, reqs, p2p.Request{}, name)
			}
			meetUp(t, c, 3) // nothing was sent until here
			sends := []p2p.Request{c.Isend(peer, 1, message), c.Issend(peer, 2, message)}
			requireReceived(t, pattern(size, peer), bufs[0], wait(t, reqs[0]), peer, 1)
			_, err := q.Wait(background, out)
			require.NoError(t, err)
			require.NoError(t, out[0].Err)
			requireReceived(t, pattern(size, peer), bufs[1], out[0].Status, peer, 2)
			require.NoError(t, p2p.WaitAll(background, sends, nil))
		}
	})
}

// TestOneBufferOfManySends: the program may read a buffer that is being sent, and so send it again,
// in whole or in part, to others and to itself.
func TestOneBufferOfManySends(t *testing.T) {
	onWirings(t, 2, p2p.Config{EagerLimit: 1000}, func(t *testing.T, w *p2p.World) {
		c := w.Comm()
		for _, size := range []int{8, 900, 300_000} {
			message := pattern(size, w.Rank())
			var sends []p2p.Request
			for range 3 {
				for dst := range w.Size() {
					sends = append(sends, c.Isend(dst, 1, message), c.Issend(dst, 1, message[size/2:]))
				}
			}
			for range 3 {
				for src := range w.Size() {
					for _, want := range [][]byte{pattern(size, src), pattern(size, src)[size/2:]} {
						buf := fresh(size)
						st, err := c.Recv(background, src, 1, buf)
						require.NoError(t, err)
						requireReceived(t, want, buf, st, src, 1)
					}
				}
			}
			require.NoError(t, p2p.WaitAll(background, sends, nil))
			requireBytes(t, pattern(size, w.Rank()), message)
		}
	})
}

// TestBuffersAreHeld: the library alone keeps a buffer alive until its operation ends.
func TestBuffersAreHeld(t *testing.T) {
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		for _, size := range []int{64, 300_000} {
			post := func() (send, recv p2p.Request, sent, into weak.Pointer[byte]) {
				out, in := pattern(size, 1), make([]byte, size)
				recv = ws[1].Comm().Irecv(0, 2, in)
				send = ws[0].Comm().Issend(1, 1, out)
				return send, recv, weak.Make(&out[0]), weak.Make(&in[0])
			}
			send, recv, sent, into := post()
			for range 3 {
				runtime.GC()
			}
			require.NotNil(t, into.Value(), "the buffer of a receive that waits")
			if size > 64 { // of an eager message the device may have a copy
				require.NotNil(t, sent.Value(), "the buffer of a send that waits")
			}
			got := fresh(size)
			st, err := ws[1].Comm().Recv(background, 0, 1, got)
			require.NoError(t, err)
			requireReceived(t, pattern(size, 1), got, st, 0, 1)
			wait(t, send)
			require.NoError(t, ws[0].Comm().Send(background, 1, 2, nil))
			wait(t, recv)
		}
	})
}
