package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

const maxComms = 2046 // beside World.Comm

// As huge_dupcomm of MPICH: as many Comms as there can be, each with a message of its own, all with
// wildcards. One more is ErrFull on all ranks. When all are closed, as many can live again.
func TestHugeDupcomm(t *testing.T) {
	modes := []p2p.ProgressMode{p2p.ProgressAuto, p2p.ProgressManual}
	if !testlevel.CI() {
		modes = modes[1:]
	}
	for _, mode := range modes {
		p2ptest.RunConfig(t, 3, p2p.Config{Progress: mode, Transport: "tmsrq", OffloadMin: -1}, func(w *p2p.World) {
			lives := 2
			if !testlevel.CI() { // the race detector and the invariants look at everything that each Comm has
				lives = 1
			}
			for range lives {
				comms := make([]*p2p.Comm, 0, maxComms)
				parent := w.Comm()
				for len(comms) < maxComms {
					parent = dup(t, parent)
					comms = append(comms, parent)
				}
				for range 2 {
					_, err := w.Comm().Dup(background)
					require.ErrorIs(t, err, p2p.ErrFull)
					require.EqualError(t, err, "p2p: dup: limit reached: no context is free on all ranks: 2046 Comms may live at once beside World.Comm, close some on all their ranks")
					_, err = parent.Split(background, w.Rank(), 0)
					require.ErrorIs(t, err, p2p.ErrFull)
				}
				got := make([][2]byte, len(comms))
				recvs := make([]p2p.Request, len(comms))
				for i, c := range comms {
					recvs[i] = c.Irecv(p2p.AnySource, p2p.AnyTag, got[i][:])
				}
				for i, c := range comms {
					require.NoError(t, c.Send(background, (w.Rank()+1)%3, 1, []byte{byte(i), byte(i >> 8)}))
				}
				require.NoError(t, p2p.WaitAll(background, recvs, nil))
				for i := range got {
					require.Equal(t, [2]byte{byte(i), byte(i >> 8)}, got[i])
				}
				for i := range 20 { // the only one that will be free is not yet, and is waited for
					require.NoError(t, comms[i].Close())
					comms[i] = dup(t, w.Comm())
				}
				for _, c := range comms {
					require.NoError(t, c.Close())
				}
			}
		})
	}
}

// A loop that makes and closes Comms does not run out of contexts, and each new one begins empty:
// what was sent on the last one and not received comes to nobody.
func TestDupAndClose(t *testing.T) {
	onWirings(t, 2, offloaded, func(t *testing.T, w *p2p.World) {
		rounds := 500
		if !testlevel.CI() {
			rounds = 100
		} else if strings.HasSuffix(t.Name(), "rc/loop") {
			rounds = 10_000
		}
		peer := 1 - w.Rank()
		small, large := make([]byte, 8), make([]byte, 20_000)
		for i := range rounds {
			c := dup(t, w.Comm())
			small[0] = byte(i)
			require.NoError(t, c.Send(background, peer, 1, small))
			in := make([]byte, 8)
			_, err := c.Recv(background, p2p.AnySource, p2p.AnyTag, in)
			require.NoError(t, err)
			require.Equal(t, byte(i), in[0])
			// Nobody receives these.
			small[0]++
			require.NoError(t, c.Send(background, peer, 2, small))
			if i%8 == 0 {
				lost := c.Isend(peer, 3, large)
				require.NoError(t, c.Close())
				_, err = lost.Wait(background)
				require.NoError(t, err)
				continue
			}
			require.NoError(t, c.Close())
		}
	})
}

// Contexts of Comms that not all ranks have closed are not used again; those that all have closed
// are, in whatever order the ranks do that.
func TestReuse(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		var comms []*p2p.Comm
		for range maxComms {
			comms = append(comms, dup(t, w.Comm()))
		}
		for i, c := range comms { // one rank keeps half of them
			if w.Rank() != 1 || i%2 == 0 {
				require.NoError(t, c.Close())
			}
		}
		var again []*p2p.Comm
		for range maxComms / 2 {
			again = append(again, dup(t, w.Comm()))
		}
		_, err := w.Comm().Dup(background)
		require.ErrorIs(t, err, p2p.ErrFull)
		barrier(t, w.Comm())
		if w.Rank() == 1 {
			for i, c := range comms {
				if i%2 != 0 {
					require.NoError(t, c.Close())
				}
			}
		}
		barrier(t, w.Comm())
		for range maxComms / 2 {
			again = append(again, dup(t, w.Comm()))
		}
		// Comms of different ranks can have the same context: more than 2,046 in all.
		for _, c := range again[:2] {
			require.NoError(t, c.Close())
		}
		single := split(t, w.Comm(), w.Rank(), 0)
		require.NoError(t, single.Send(background, 0, 1, []byte("own")))
		buf := make([]byte, 3)
		_, err = single.Recv(background, p2p.AnySource, p2p.AnyTag, buf)
		require.NoError(t, err)
		require.Equal(t, "own", string(buf))
	})
}

// Close ends receives that wait, wherever they are, and nothing else.
func TestCloseEndsReceives(t *testing.T) {
	onWirings(t, 2, offloaded, func(t *testing.T, w *p2p.World) {
		c, other, peer := dup(t, w.Comm()), dup(t, w.Comm()), 1-w.Rank()
		var ends []p2p.Request
		for i := range 20 {
			ends = append(ends, c.Irecv(peer, p2p.Tag(i), make([]byte, 8)), c.Irecv(p2p.AnySource, p2p.AnyTag, make([]byte, 30_000)))
		}
		goesOn := []p2p.Request{other.Irecv(p2p.AnySource, p2p.AnyTag, make([]byte, 8)), w.Irecv(0, p2p.MaskAny, make([]byte, 8))}
		blocked := make(chan error)
		posted := w.Metrics().PostedNow + 1
		go func() {
			_, err := c.Recv(background, peer, 100, make([]byte, 8))
			blocked <- err
		}()
		eventually(t, func() bool { return w.Metrics().PostedNow == posted })
		barrier(t, w.Comm())
		require.NoError(t, c.Close())
		for _, r := range ends {
			st, err := r.Wait(background)
			require.ErrorIs(t, err, p2p.ErrClosed)
			require.ErrorContains(t, err, "communicator closed")
			require.Equal(t, p2p.ProcNull, st.Source)
		}
		require.ErrorIs(t, <-blocked, p2p.ErrClosed)
		for _, r := range goesOn {
			_, done, err := r.Test()
			require.False(t, done)
			require.NoError(t, err)
		}
		barrier(t, w.Comm())
		require.NoError(t, other.Send(background, peer, 1, nil))
		require.NoError(t, w.Send(background, peer, 1, nil))
		require.NoError(t, p2p.WaitAll(background, goesOn, nil))
	})
}

// What a rank has sent on a Comm and its receiver never takes is no burden once the receiver has
// closed the Comm: sends end, also those that were held up.
func TestCloseFreesSenders(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		cfg := p2p.Config{Transport: transport, UnexpectedLimit: 20_000, OffloadMin: -1}
		p2ptest.RunConfig(t, 2, cfg, func(w *p2p.World) {
			c, world := dup(t, w.Comm()), w.Comm()
			if w.Rank() == 0 {
				var sends []p2p.Request
				for range 200 {
					sends = append(sends, c.Isend(1, 1, make([]byte, 1000)), c.Isend(1, 2, make([]byte, 100_000)))
				}
				require.NoError(t, c.Close())
				require.NoError(t, p2p.WaitAll(background, sends, nil))
				require.NoError(t, world.Send(background, 1, 3, nil))
				require.NoError(t, second(world.Recv(background, 1, 4, nil)))
			} else {
				require.NoError(t, c.Close())
				_, err := world.Recv(background, 0, 3, nil)
				require.NoError(t, err)
				require.Zero(t, w.Metrics().UnexpectedNow)
				require.NoError(t, world.Send(background, 0, 4, nil))
			}
			d := dup(t, world)
			r := d.Irecv(p2p.AnySource, p2p.AnyTag, nil)
			barrier(t, world)
			requireUnmatched(t, r)
		})
	}
}

// Receives from any source of a Comm end by the loss of its members, and of nobody else.
func TestLossOfMembers(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		cfg := p2p.Config{Transport: transport, OffloadMin: -1}
		p2ptest.RunConfig(t, 4, cfg, func(w *p2p.World) {
			defer w.Close()
			c, err := w.Comm().Split(background, w.Rank()%2, 0) // {0, 2} and {1, 3}
			assert.NoError(t, err)
			barrier(t, w.Comm())
			if w.Rank() == 3 {
				return
			}
			buf, all := make([]byte, 8), make([]byte, 8)
			r, any := c.Irecv(p2p.AnySource, 5, buf), w.Comm().Irecv(p2p.AnySource, 5, all)
			from := w.Comm().Irecv((w.Rank()+1)%3, p2p.Tag(w.Rank()), make([]byte, 8))
			fromLost := w.Comm().Irecv(3, 100, nil)
			_, err = any.Wait(background)
			assert.ErrorIs(t, err, p2p.ErrPeerLost)
			_, err = fromLost.Wait(background)
			assert.ErrorIs(t, err, p2p.ErrPeerLost)
			var op *p2p.OpError
			assert.ErrorAs(t, err, &op)
			assert.Equal(t, 3, op.Rank)
			if w.Rank() == 1 {
				_, err = r.Wait(background)
				assert.ErrorIs(t, err, p2p.ErrPeerLost)
				var peer *p2p.PeerError
				assert.ErrorAs(t, err, &peer)
				assert.Equal(t, []int{3}, peer.Ranks)
				_, err = c.Recv(background, p2p.AnySource, 5, buf)
				assert.ErrorIs(t, err, p2p.ErrPeerLost)
				w.AckFailures(3) // hides nothing from a Comm of somebody else
				_, err = c.Recv(background, p2p.AnySource, 5, buf)
				assert.ErrorIs(t, err, p2p.ErrPeerLost)
				c.AckFailures(0, 3)
				r = c.Irecv(p2p.AnySource, 5, buf) // of itself
				_, done, err := r.Test()
				assert.NoError(t, err)
				assert.False(t, done)
			}
			assert.NoError(t, c.Send(background, map[int]int{0: 1, 1: 0, 2: 0}[w.Rank()], 5, []byte("members")))
			_, err = r.Wait(background)
			assert.NoError(t, err)
			for r := range 3 { // the tag names its receiver, whose next rank sends it
				if (r+1)%3 == w.Rank() {
					assert.NoError(t, w.Comm().Send(background, r, p2p.Tag(r), nil))
				}
			}
			st, err := from.Wait(background)
			assert.NoError(t, err)
			assert.Equal(t, (w.Rank()+1)%3, st.Source)
			if w.Rank() != 1 { // a Comm without the lost rank can still be made of, and closed
				d, err := c.Dup(background)
				assert.NoError(t, err)
				assert.NoError(t, d.Close())
			}
			w.AckFailures(3)
			for r := range 3 {
				assert.NoError(t, w.Comm().Send(background, r, 9, nil))
			}
			for r := range 3 {
				_, err := w.Comm().Recv(background, r, 9, nil)
				assert.NoError(t, err)
			}
		})
	}
}

// A Dup that a lost rank or a context ends does so on each rank, and the Comm says so later.
func TestDupFails(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		defer w.Close()
		c, err := w.Comm().Dup(background)
		assert.NoError(t, err)
		pair, err := w.Comm().Split(background, w.Rank()/2, 0)
		assert.NoError(t, err)
		barrier(t, w.Comm())
		if w.Rank() == 2 {
			return
		}
		_, err = c.Dup(background)
		loss, ok := errors.AsType[*p2p.PeerError](err)
		if assert.True(t, ok, err) {
			assert.Equal(t, []int{2}, loss.Ranks)
		}
		_, err = c.Dup(background)
		assert.ErrorContains(t, err, "p2p: dup: an earlier call on this Comm failed")
		assert.Equal(t, 1, strings.Count(err.Error(), "p2p: "), err)
		_, err = pair.Dup(background)
		assert.NoError(t, err)
		barrier(t, pair)
	})
}

// Where contexts end Dups at any moment, on each rank another one, some ranks may have a Comm that
// others have not. Its context is free on none of them.
func TestDupInterrupted(t *testing.T) {
	const n, rounds = 3, 200
	var mu sync.Mutex
	used := map[int]string{} // contexts of what has not been closed, by what is to be told of it
	failed, partly := 0, 0
	var made [rounds]int
	note := func(c *p2p.Comm, what string) {
		mu.Lock()
		defer mu.Unlock()
		if before, ok := used[p2p.ContextOf(c)]; ok {
			assert.Equal(t, before, what, "context %d", p2p.ContextOf(c))
		}
		used[p2p.ContextOf(c)] = what
	}
	p2ptest.Run(t, n, func(w *p2p.World) {
		rng := rand.New(rand.NewPCG(1, uint64(w.Rank())))
		alone := split(t, w.Comm(), w.Rank(), 0)
		for i := range rounds {
			parent := dup(t, w.Comm())
			short, cancel := context.WithTimeout(background, time.Duration(rng.IntN(200))*time.Microsecond)
			d, err := parent.Dup(short)
			cancel()
			mu.Lock()
			if err != nil {
				failed++
			} else {
				made[i]++
			}
			mu.Unlock()
			if err == nil {
				note(d, fmt.Sprintf("Dup of all %d", i))
				continue
			}
			// The first context that is free here, which those who have d must not use.
			own := dup(t, alone)
			mu.Lock()
			_, taken := used[p2p.ContextOf(own)]
			mu.Unlock()
			barrier(t, alone)
			assert.False(t, taken, "rank %d takes context %d", w.Rank(), p2p.ContextOf(own))
			require.NoError(t, own.Close())
		}
	})
	for _, ranks := range made {
		if ranks != 0 && ranks != n {
			partly++
		}
	}
	t.Logf("%d Dups failed, %d of %d on some ranks only", failed, partly, rounds)
	require.NotZero(t, failed)
}
