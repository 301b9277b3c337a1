package p2p_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestKeepsNothingOfSilentSender: a Recv whose context ends while its sender does not answer,
// before the first byte or after some, has its buffer back at once, although the read goes on.
func TestKeepsNothingOfSilentSender(t *testing.T) {
	cfg := p2p.Config{Progress: p2p.ProgressManual}
	worldsOnWirings(t, 2, cfg, func(t *testing.T, ws []*p2p.World) {
		for _, answers := range []int{0, 16} { // of a MiB or less each
			message := pattern(48<<20, 1)
			send := ws[0].Comm().Isend(1, 7, message)
			for there := false; !there; _, there, _ = ws[1].Comm().Iprobe(0, 7) {
				_, _, err := send.Test()
				require.NoError(t, err)
			}
			var l left
			ctx, cancel := context.WithCancel(background)
			var received error
			together(t, 2, func(i int) {
				if i == 0 {
					for range answers {
						_, _, _ = send.Peek()
					}
					for ws[1].Metrics().UnexpectedNow != 0 {
						runtime.Gosched() // it is to be taken
					}
					cancel()
					return
				}
				r := newLeaver(t, &l, ws, 1, len(message), 7, "Recv")
				_, received = r.c.Recv(leaves(r.left, "its context", &programContext{Context: ctx}), 0, 7, r.buf(r.size))
			})
			l.check(t)
			if received == nil {
				require.True(t, answers != 0 || strings.HasSuffix(t.Name(), "/shm"), "only over shared memory nobody has to answer")
				wait(t, send)
				continue
			}
			require.ErrorIs(t, received, context.Canceled)
			together(t, 2, func(i int) {
				if i == 0 {
					wait(t, send)
					return
				}
				st, err := ws[1].Comm().Recv(background, 0, 7, fresh(len(message)))
				require.NoError(t, err)
				require.Equal(t, int64(len(message)), st.Len)
			})
		}
	})
}

// TestKeepsNothingOfLostRank: nor does it keep what operations with a rank had that is lost.
func TestKeepsNothingOfLostRank(t *testing.T) {
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		for i := range ws { // connects them
			arrived(t, ws[i], ws[1-i])
		}
		var l left
		r := newLeaver(t, &l, ws, 0, 100<<10, 3, "an operation with a lost rank")
		posted := func() int { return ws[0].Metrics().PostedNow }
		together(t, 9, func(i int) {
			lost := func(_ p2p.Status, err error) { r.failed(err, p2p.ErrPeerLost) }
			switch i {
			case 0:
				lost(r.c.Recv(r.ctx(), 1, 3, r.buf(r.size)))
			case 1:
				lost(r.c.Recv(r.ctx(), p2p.AnySource, 4, r.buf(r.size)))
			case 2:
				lost(r.c.Irecv(1, 5, r.buf(24)).Wait(r.ctx()))
			case 3:
				lost(r.c.IrecvVec(1, 6, r.parts()).Wait(r.ctx()))
			case 4:
				lost(r.c.Isend(1, 7, r.buf(r.size)).Wait(r.ctx()))
			case 5:
				lost(p2p.Status{}, r.c.Ssend(r.ctx(), 1, 8, r.buf(24)))
			case 6:
				_, err := r.c.Mprobe(r.ctx(), 1, 9)
				lost(p2p.Status{}, err)
			case 7:
				r.c.Irecv(1, 10, r.buf(r.size)).Free()
			case 8:
				eventually(t, func() bool { return posted() >= 6 })
				require.NoError(t, ws[1].Close())
			}
		})
		lost := func(err error) { r.failed(err, p2p.ErrPeerLost) }
		together(t, 1, func(int) { lost(r.c.Send(r.ctx(), 1, 3, r.buf(24))) }) // a later one, too
		l.check(t)
		require.NoError(t, ws[0].Close())
	})
}

// TestKeepsNothingOnceEnded: a World that is closed, or shut down in vain, refers to nothing of the
// operations that had not ended, or whose outcome nobody has asked for.
func TestKeepsNothingOnceEnded(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, w *p2p.World){
		"Close": func(t *testing.T, w *p2p.World) { require.NoError(t, w.Close()) },
		"Shutdown": func(t *testing.T, w *p2p.World) {
			ctx, cancel := context.WithCancel(background)
			cancel()
			require.ErrorIs(t, w.Shutdown(ctx), context.Canceled)
		},
	} {
		t.Run(how, func(t *testing.T) {
			worldsOnWirings(t, 2, p2p.Config{EagerLimit: 4096}, func(t *testing.T, ws []*p2p.World) {
				var l left
				together(t, 2, func(i int) { leaveOpen(newLeaver(t, &l, ws, i, 100<<10, 0, "an open operation")) })
				together(t, 5, func(i int) {
					r := newLeaver(t, &l, ws, i%2, 100<<10, 1, "a blocking call")
					switch i / 2 {
					case 0:
						_, err := r.c.Recv(r.ctx(), r.peer, 50, r.buf(r.size))
						r.ended(err)
					case 1:
						r.ended(r.c.Ssend(r.ctx(), r.peer, 60, r.buf(r.size)))
					case 2:
						eventually(t, func() bool {
							return ws[0].Metrics().PostedNow == openReceives && ws[1].Metrics().PostedNow == openReceives
						})
						together(t, 2, func(i int) { end(t, ws[i]) })
					}
				})
				l.check(t)
				runtime.KeepAlive(ws)
			})
		})
	}
}

// ended takes the error of an operation that an end has interrupted, of its World or of the peer's.
func (r *leaver) ended(err error) {
	if errors.Is(err, p2p.ErrPeerLost) {
		_ = r.opError(err, p2p.ErrPeerLost)
	} else {
		r.failed(err, p2p.ErrClosed)
	}
}

// openReceives is how many receives are posted at a rank once leaveOpen has returned and a blocking
// call waits.
const openReceives = 8

// leaveOpen posts what does not end, or is not waited for, and drops all handles.
func leaveOpen(r *leaver) {
	_ = r.c.Irecv(r.peer, 10, r.buf(r.size))
	_ = r.c.Irecv(p2p.AnySource, 11, r.buf(24))
	_ = r.c.IrecvVec(r.peer, 12, r.parts())
	_ = r.c.IrecvAll(nil, []p2p.Transfer{{Rank: r.peer, Tag: 13, Buf: r.buf(r.size)}})
	_ = r.c.RecvInit(r.peer, 14, r.buf(r.size)).Start()
	r.c.Irecv(r.peer, 15, r.buf(r.size)).Free()
	r.c.Irecv(r.peer, 16, r.buf(r.size)).Notify(r.w.NewQueue(1), 1)
	_ = r.c.Isend(r.peer, 20, r.buf(r.size)) // is not received
	_ = r.c.Isend(r.peer, 21, r.buf(r.size)) // is probed, and not received
	_ = r.c.Isend(r.peer, 22, r.buf(24))
	_ = r.message(r.c.Mprobe(r.ctx(), r.peer, 21))
	_ = r.message(r.c.Mprobe(r.ctx(), r.peer, 22))
	_ = r.c.Isend(r.peer, 23, r.buf(r.size)) // ends, and is not waited for
	_, err := r.c.Recv(r.ctx(), r.peer, 23, r.buf(r.size))
	r.ok(err)
}
