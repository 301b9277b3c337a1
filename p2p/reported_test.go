package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// bornEnded begins, in a World of one rank, nonblocking calls that end in their own post.
func bornEnded(t *testing.T, c *p2p.Comm) (reqs []p2p.Request) {
	none, _, err := c.Improbe(p2p.ProcNull, 1)
	require.NoError(t, err)
	kept := c.SendInit(0, 2, nil)
	reqs = []p2p.Request{
		c.Isend(p2p.ProcNull, 1, nil), c.Issend(p2p.ProcNull, 1, nil), c.Irecv(p2p.ProcNull, 1, nil), c.Irecv(p2p.ProcNull, p2p.AnyTag, nil),
		c.IsendVec(p2p.ProcNull, 1, nil), c.IssendVec(p2p.ProcNull, 1, nil), c.IrecvVec(p2p.ProcNull, 1, nil), none.Irecv(nil),
		c.SendInit(p2p.ProcNull, 1, nil).Start(), c.SsendInit(p2p.ProcNull, 1, nil).Start(), c.RecvInit(p2p.ProcNull, 1, nil).Start(),
		c.Isend(0, 2, nil), kept.Start(), c.Isend(0, p2p.MaxCommTag+1, nil), c.Irecv(7, 1, nil), c.RecvInit(7, 1, nil).Start(), kept.Start(),
	}
	reqs = c.IsendAll(reqs, []p2p.Transfer{{Rank: p2p.ProcNull}, {Tag: 2}, {Rank: p2p.ProcNull}, {Rank: 7}})
	return c.IrecvAll(reqs, []p2p.Transfer{{Rank: p2p.ProcNull}, {Rank: 7}})
}

// reporters are all ways to be told of requests that have ended: each gives the indices that it has
// reported, in their order. Indices behind those of one call are found by calling it again.
var reporters = map[string]func(*testing.T, *p2p.World, []p2p.Request) []int{
	"WaitAny": func(_ *testing.T, _ *p2p.World, reqs []p2p.Request) (got []int) {
		for {
			i, _, _ := p2p.WaitAny(background, reqs)
			if i < 0 {
				return got
			}
			got = append(got, i)
		}
	},
	"TestAny": func(t *testing.T, _ *p2p.World, reqs []p2p.Request) (got []int) {
		for {
			i, _, done, _ := p2p.TestAny(reqs)
			require.True(t, done)
			if i < 0 {
				return got
			}
			got = append(got, i)
		}
	},
	"WaitSome": func(t *testing.T, _ *p2p.World, reqs []p2p.Request) (got []int) {
		out := make([]p2p.Completion, 5)
		for {
			n, err := p2p.WaitSome(background, reqs, out)
			require.NoError(t, err)
			if n == 0 {
				return got
			}
			got = append(got, indices(out[:n])...)
		}
	},
	"TestSome": func(_ *testing.T, _ *p2p.World, reqs []p2p.Request) (got []int) {
		out := make([]p2p.Completion, 5)
		for {
			n, active := p2p.TestSome(reqs, out)
			got = append(got, indices(out[:n])...)
			if !active {
				return got
			}
		}
	},
	"WaitAll": func(_ *testing.T, _ *p2p.World, reqs []p2p.Request) []int {
		out := make([]p2p.Completion, len(reqs))
		_ = p2p.WaitAll(background, reqs, out)
		return indices(out)
	},
	"TestAll": func(t *testing.T, _ *p2p.World, reqs []p2p.Request) []int {
		out := make([]p2p.Completion, len(reqs))
		done, _ := p2p.TestAll(reqs, out)
		require.True(t, done)
		return indices(out)
	},
	"Queue": func(t *testing.T, w *p2p.World, reqs []p2p.Request) []int {
		q, out := w.NewQueue(len(reqs)), make([]p2p.Completion, len(reqs)+1)
		for i, r := range reqs {
			r.Notify(q, uint64(i))
			reqs[i] = p2p.Request{}
		}
		n := q.Poll(out)
		require.NoError(t, q.Close())
		return indices(out[:n])
	},
	"Wait": func(_ *testing.T, _ *p2p.World, reqs []p2p.Request) (got []int) {
		for i, r := range reqs {
			_, _ = r.Wait(background)
			reqs[i], got = p2p.Request{}, append(got, i)
		}
		return got
	},
}

func indices(out []p2p.Completion) (is []int) {
	for i := range out {
		is = append(is, int(out[i].Data))
	}
	return is
}

// Each request of a call that has ended in its own post, with ProcNull as the peer, of a message of
// no bytes to this rank, or with wrong arguments, is reported once by whatever asks for it. Copies
// of the request are consumed with it.
func TestEndedCallsAreReportedOnce(t *testing.T) {
	for name, report := range reporters {
		t.Run(name, func(t *testing.T) {
			p2ptest.Run(t, 1, func(w *p2p.World) {
				reqs := bornEnded(t, w.Comm())
				copies := append([]p2p.Request(nil), reqs...)
				var all []int
				for i, r := range reqs {
					_, done, err := r.Peek()
					require.True(t, done)
					require.NotErrorIs(t, err, p2p.ErrInactive, "request %d", i)
					all = append(all, i)
				}
				require.Equal(t, all, report(t, w, reqs))
				require.Equal(t, make([]p2p.Request, len(reqs)), reqs)
				for i, r := range copies {
					_, err := r.Wait(background)
					require.ErrorIs(t, err, p2p.ErrInactive, "request %d", i)
				}
				i, _, err := p2p.WaitAny(background, copies)
				require.NoError(t, err)
				require.Equal(t, -1, i)
				for range 3 {
					_, err := w.Comm().Recv(background, 0, 2, nil)
					require.NoError(t, err)
				}
			})
		})
	}
}

// Requests with ProcNull, and those of IsendAll and IrecvAll, take no memory once some were
// reported.
func TestRequestsAllocateNothing(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c := w.Comm()
		pair := make([]p2p.Request, 2)
		reqs, ts := make([]p2p.Request, 0, 8), []p2p.Transfer{{Tag: 1}, {Tag: 2}, {Rank: p2p.ProcNull}}
		exchange := func() {
			pair[0], pair[1] = c.Isend(p2p.ProcNull, 1, nil), c.Irecv(p2p.ProcNull, 1, nil)
			for want := range pair {
				i, st, err := p2p.WaitAny(background, pair)
				if i != want || st != nothing || err != nil {
					t.Error(i, st, err)
				}
			}
			if err := p2p.WaitAll(background, c.IsendAll(c.IrecvAll(reqs, ts), ts), nil); err != nil {
				t.Error(err)
			}
		}
		for range 1000 {
			exchange()
		}
		if !invariant.Enabled { // what is known of each operation is allocated
			require.Zero(t, testing.AllocsPerRun(1000, exchange))
		}
	})
}
