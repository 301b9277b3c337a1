package p2p_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestMany exchanges more messages than one hold of the lock posts, eager and large ones, by the
// calls that post many; half of them are sent before their receives are posted.
func TestMany(t *testing.T) {
	const n = 200
	onWirings(t, 2, p2p.Config{EagerLimit: 1000}, func(t *testing.T, w *p2p.World) {
		c, peer := w.Comm(), 1-w.Rank()
		var out, in, wild []p2p.Transfer
		for i := range n {
			m := pattern(10*i, i+w.Rank())
			out = append(out, p2p.Transfer{Rank: peer, Tag: p2p.Tag(i), Buf: m})
			in = append(in, p2p.Transfer{Rank: peer, Tag: p2p.Tag(i), Buf: fresh(len(m) + 3)})
			wild = append(wild, p2p.Transfer{Rank: p2p.AnySource, Tag: p2p.Tag(i), Buf: fresh(len(m) + 3)})
		}
		reqs := c.IsendAll(nil, out)
		require.Len(t, reqs, n)
		reqs = c.IrecvAll(reqs, wild)
		reqs = c.IrecvAll(reqs, in)
		reqs = c.IsendAll(reqs, out)
		require.Len(t, reqs, 4*n)
		got := make([]p2p.Completion, 4*n)
		require.NoError(t, p2p.WaitAll(background, reqs, got))
		for i := range n {
			m := pattern(10*i, i+peer)
			requireReceived(t, m, wild[i].Buf, got[n+i].Status, peer, p2p.Tag(i))
			requireReceived(t, m, in[i].Buf, got[2*n+i].Status, peer, p2p.Tag(i))
			require.Equal(t, p2p.Status{Source: w.Rank(), Tag: p2p.Tag(i), Len: int64(10 * i)}, got[3*n+i].Status)
		}
	})
}

// TestManyArguments: a Transfer with wrong arguments is refused as a single call would refuse it,
// and those around it go on. Requests that are there already stay.
func TestManyArguments(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c := w.Comm()
		ended := w.Isend(0, 1, nil)
		_, err := w.Recv(background, 1, p2p.MaskExact, nil)
		require.NoError(t, err)
		for _, tt := range []struct {
			post   func([]p2p.Request, []p2p.Transfer) []p2p.Request
			single func(p2p.Transfer) p2p.Request
			wrong  []p2p.Transfer
		}{
			{c.IsendAll, func(t p2p.Transfer) p2p.Request { return c.Isend(t.Rank, t.Tag, t.Buf) },
				[]p2p.Transfer{{Rank: 1}, {Rank: p2p.AnySource}, {Tag: p2p.MaxCommTag + 1}}},
			{c.IrecvAll, func(t p2p.Transfer) p2p.Request { return c.Irecv(t.Rank, t.Tag, t.Buf) },
				[]p2p.Transfer{{Rank: 1}, {Rank: -3}, {Tag: p2p.MaxCommTag + 1}}},
		} {
			reqs := tt.post([]p2p.Request{ended}, append(tt.wrong, p2p.Transfer{Rank: p2p.ProcNull}))
			require.Len(t, reqs, 5)
			out := make([]p2p.Completion, len(reqs))
			require.Error(t, p2p.WaitAll(background, reqs, out))
			require.NoError(t, out[0].Err)
			for i, m := range tt.wrong {
				_, err := tt.single(m).Wait(background)
				require.ErrorIs(t, err, p2p.ErrInvalid)
				require.EqualError(t, out[1+i].Err, err.Error())
			}
			require.Equal(t, p2p.Completion{Data: 4, Status: nothing}, out[4])
			require.Empty(t, tt.post(nil, nil))
			ended = p2p.Request{}
		}
	})
}

// TestManyGoroutines has goroutines post many at once beside others that post and wait one by one.
func TestManyGoroutines(t *testing.T) {
	const n, pairs = 300, 8
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		var all sync.WaitGroup
		for id := range pairs {
			all.Go(func() {
				tag := p2p.Tag(id) << 24
				for round := range rounds(4) {
					exchangeMany(t, w, tag|p2p.Tag(round)<<16, n)
				}
			})
		}
		all.Wait()
	})
}

// exchangeMany exchanges n messages with the peer, half of them one by one.
func exchangeMany(t *testing.T, w *p2p.World, tag p2p.Tag, n int) {
	out, in := make([]p2p.Transfer, n/2), make([]p2p.Transfer, n/2)
	for i := range out {
		tag := tag | p2p.Tag(i)
		out[i] = p2p.Transfer{Rank: 1 - w.Rank(), Tag: tag, Buf: pattern(8, i)}
		in[i] = p2p.Transfer{Rank: 1 - w.Rank(), Tag: tag, Buf: make([]byte, 8)}
	}
	c := w.Comm()
	reqs := c.IsendAll(c.IrecvAll(nil, in), out)
	for i := n / 2; i < n; i++ {
		reqs = append(reqs, w.Isend(1-w.Rank(), tag|p2p.Tag(i), pattern(8, i)))
	}
	for i := n / 2; i < n; i++ {
		buf := make([]byte, 8)
		_, err := w.Recv(background, tag|p2p.Tag(i), p2p.MaskExact, buf)
		if err != nil || string(buf) != string(pattern(8, i)) {
			t.Errorf("message %d: %x, %v", i, buf, err)
		}
	}
	if err := p2p.WaitAll(background, reqs, nil); err != nil {
		t.Error(err)
	}
	for i, m := range in {
		if string(m.Buf) != string(pattern(8, i)) {
			t.Errorf("message %d: %x", i, m.Buf)
		}
	}
}

// TestWindowsStayExpected: a receiver that is slower than its sender posts its receives in windows.
// What waits behind a window stays where it is, until the next one is posted.
func TestWindowsStayExpected(t *testing.T) {
	const n, window = 120, 10
	for _, device := range []string{"", "shm"} {
		t.Run(device, func(t *testing.T) {
			skipUnlessLinux(t, device)
			sent := make(chan struct{})
			p2ptest.RunConfig(t, 2, p2p.Config{Device: device, Transport: "rc", Progress: p2p.ProgressManual}, func(w *p2p.World) {
				require.NoError(t, roundTrips(w, 1, 1))
				ts := make([]p2p.Transfer, window)
				for i := range ts {
					ts[i] = p2p.Transfer{Rank: 1 - w.Rank(), Tag: 2, Buf: make([]byte, 100)} // too long to go as few
				}
				before := w.Metrics().Unexpected
				for i := range n / window {
					if w.Rank() == 0 {
						require.NoError(t, p2p.WaitAll(background, w.Comm().IsendAll(nil, ts), nil))
						continue
					}
					if i == 0 {
						<-sent
					}
					require.NoError(t, p2p.WaitAll(background, w.Comm().IrecvAll(nil, ts), nil))
				}
				if w.Rank() == 0 {
					close(sent)
				} else {
					require.Equal(t, before, w.Metrics().Unexpected)
				}
			})
		})
	}
}

// TestNobodyStarves: who receives one message after the other from any rank gets those of each in
// turn, however many wait from one of them.
func TestNobodyStarves(t *testing.T) {
	const n = 100
	for _, device := range []string{"", "shm"} {
		t.Run(device, func(t *testing.T) {
			skipUnlessLinux(t, device)
			var met, sent sync.WaitGroup
			met.Add(1)
			sent.Add(3)
			p2ptest.RunConfig(t, 3, p2p.Config{Device: device, Transport: "rc", Progress: p2p.ProgressManual}, func(w *p2p.World) {
				c := w.Comm()
				buf := make([]byte, 100)
				require.NoError(t, c.Send(background, 0, 1, nil)) // connects the ranks
				for i := 0; w.Rank() == 0 && i < 3; i++ {
					_, err := c.Recv(background, i, 1, buf)
					require.NoError(t, err)
					require.NoError(t, c.Send(background, i, 3, nil))
				}
				_, err := c.Recv(background, 0, 3, buf)
				require.NoError(t, err)
				if w.Rank() == 0 {
					met.Done()
				}
				met.Wait()
				for range n {
					require.NoError(t, c.Send(background, 0, 2, buf))
				}
				sent.Done()
				if w.Rank() != 0 {
					return
				}
				sent.Wait()
				var got [3]int
				for i := range 3 * n {
					st, err := c.Recv(background, p2p.AnySource, 2, buf)
					require.NoError(t, err)
					if got[st.Source]++; i == n {
						require.Greater(t, min(got[0], got[1], got[2]), n/10, "of the first messages came so many from each: %v", got)
					}
				}
			})
		})
	}
}
