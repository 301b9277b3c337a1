package p2p_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// barrier has the ranks of c wait for each other.
func barrier(t *testing.T, c *p2p.Comm) {
	t.Helper()
	for r := range c.Size() {
		require.NoError(t, c.Send(background, r, p2p.MaxCommTag, nil))
	}
	for r := range c.Size() {
		_, err := c.Recv(background, r, p2p.MaxCommTag, nil)
		require.NoError(t, err)
	}
}

func dup(t *testing.T, c *p2p.Comm) *p2p.Comm {
	t.Helper()
	d, err := c.Dup(background)
	require.NoError(t, err)
	require.Equal(t, c.Rank(), d.Rank())
	require.Equal(t, c.Size(), d.Size())
	require.Same(t, c.World(), d.World())
	return d
}

func split(t *testing.T, c *p2p.Comm, color, key int) *p2p.Comm {
	t.Helper()
	s, err := c.Split(background, color, key)
	require.NoError(t, err)
	return s
}

// ranksOf is the ranks in the World of the members of c, in order.
func ranksOf(c *p2p.Comm) (list []int) {
	for r := range c.Size() {
		list = append(list, c.WorldRank(r))
	}
	return list
}

func TestSplitRanks(t *testing.T) {
	p2ptest.Run(t, 7, func(w *p2p.World) {
		c := w.Comm()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, ranksOf(c))
		odd := split(t, c, w.Rank()%2, -w.Rank())
		want := [][]int{{6, 4, 2, 0}, {5, 3, 1}}[w.Rank()%2]
		require.Equal(t, want, ranksOf(odd))
		for world := -2; world < 9; world++ {
			rank := p2p.ProcNull
			for r, member := range want {
				if member == world {
					rank = r
				}
			}
			require.Equal(t, rank, odd.RankOf(world), "rank %d of the World", world)
			if world < 0 || world >= 7 {
				require.Equal(t, p2p.ProcNull, c.RankOf(world))
				require.Equal(t, p2p.ProcNull, c.WorldRank(world))
			} else {
				require.Equal(t, world, c.RankOf(world))
			}
		}
		require.Equal(t, p2p.ProcNull, odd.WorldRank(-1))
		require.Equal(t, p2p.ProcNull, odd.WorldRank(len(want)))

		// Of equal keys the order is that of the Comm that is split; who gives a negative color is
		// in none.
		color := 1
		if odd.Rank() == 1 {
			color = -5
		}
		sub := split(t, odd, color, 3)
		if color < 0 {
			require.Nil(t, sub)
		} else {
			require.Equal(t, [][]int{{6, 2, 0}, {5, 1}}[w.Rank()%2], ranksOf(sub))
			require.Equal(t, w.Rank(), sub.WorldRank(sub.Rank()))
			require.Equal(t, ranksOf(sub), ranksOf(dup(t, sub)))
		}
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, ranksOf(split(t, c, 0, w.Rank())))
		require.Equal(t, []int{w.Rank()}, ranksOf(split(t, c, w.Rank(), 0)))
	})
}

// What status, errors and arguments call a rank is its rank in the Comm, for messages of all sizes,
// blocking and nonblocking.
func TestSplitMessages(t *testing.T) {
	onWirings(t, 4, offloaded, func(t *testing.T, w *p2p.World) {
		c := split(t, w.Comm(), w.Rank()%2, -w.Rank()) // {2, 0} and {3, 1}
		me, peer := c.Rank(), 1-c.Rank()
		for _, size := range []int{0, 8, 2000, 300_000} {
			out := bytes.Repeat([]byte{byte(w.Rank())}, size)
			for _, src := range []int{peer, p2p.AnySource} {
				for _, posted := range []bool{true, false} {
					in := make([]byte, size+1)
					var r p2p.Request
					if posted {
						r = c.Irecv(src, 7, in)
					}
					barrier(t, c)
					s := c.Isend(peer, 7, out)
					var st p2p.Status
					var err error
					if posted {
						st, err = r.Wait(background)
					} else {
						st, err = c.Recv(background, src, p2p.AnyTag, in)
					}
					require.NoError(t, err)
					require.Equal(t, p2p.Status{Source: peer, Tag: 7, Len: int64(size)}, st)
					require.Equal(t, bytes.Repeat([]byte{byte(c.WorldRank(peer))}, size), in[:size])
					st, err = s.Wait(background)
					require.NoError(t, err)
					require.Equal(t, me, st.Source)
				}
			}
		}
		s := c.Isend(peer, 8, make([]byte, 5))
		st, err := c.Recv(background, peer, 8, make([]byte, 2))
		require.EqualError(t, err, fmt.Sprintf(
			"p2p: recv from %d (rank %d of the World), tag 0x8: message longer than the buffer: 5 bytes into 2", peer, c.WorldRank(peer)))
		require.Equal(t, p2p.Status{Source: peer, Tag: 8, Len: 5}, st)
		_, err = s.Wait(background)
		require.NoError(t, err)
		require.EqualError(t, c.Send(background, 2, 1, nil),
			"p2p: send to 2, tag 0x1: invalid argument: rank 2 is out of range: destinations go from 0 to 1, or ProcNull")
	})
}

// Messages match receives of their own context only, whatever is wild.
func TestContextsDoNotMeet(t *testing.T) {
	onWirings(t, 4, offloaded, func(t *testing.T, w *p2p.World) {
		world, between := w.Comm(), dup(t, w.Comm())
		comms := []*p2p.Comm{world, dup(t, world), split(t, world, 0, -w.Rank()), split(t, world, w.Rank()/2, 0)}
		comms = append(comms, dup(t, comms[3]))
		const sizes = 3
		type pending struct {
			comm, size int
			r          p2p.Request
			buf        []byte
		}
		for _, early := range []bool{true, false} { // the receives are posted before the messages come
			var recvs []pending
			var sends []p2p.Request
			post := func() {
				for i := range sizes * 2 {
					for k, c := range comms {
						buf := make([]byte, 50_000)
						recvs = append(recvs, pending{k, i, c.Irecv(p2p.AnySource, p2p.AnyTag, buf), buf})
					}
				}
				buf := make([]byte, 50_000)
				recvs = append(recvs, pending{len(comms), 0, w.Irecv(0, p2p.MaskAny, buf), buf})
			}
			raw := w.Rank() ^ 1
			if early {
				post()
			}
			for i := range sizes * 2 {
				for k := len(comms) - 1; k >= 0; k-- {
					c := comms[k]
					dst := (c.Rank() + 1) % c.Size()
					buf := bytes.Repeat([]byte{byte(k)}, []int{1, 2000, 50_000}[i%3])
					sends = append(sends, c.Isend(dst, p2p.Tag(i), buf))
				}
			}
			sends = append(sends, w.Isend(raw, 3, []byte{byte(len(comms))}))
			if !early {
				post()
			}
			for _, p := range recvs {
				st, err := p.r.Wait(background)
				require.NoError(t, err)
				require.NotZero(t, st.Len)
				require.Equal(t, bytes.Repeat([]byte{byte(p.comm)}, int(st.Len)), p.buf[:st.Len])
				if p.comm == len(comms) {
					require.Equal(t, raw, st.Source)
					continue
				}
				c := comms[p.comm]
				require.Equal(t, (c.Rank()+c.Size()-1)%c.Size(), st.Source)
				require.Equal(t, p2p.Tag(p.size), st.Tag) // of one source, in order
			}
			require.NoError(t, p2p.WaitAll(background, sends, nil))
			barrier(t, between)
		}
	})
}

// Goroutines make Comms of different Comms at once, on each rank in another order. The ranks of no
// two Comms that share a rank get the same context.
func TestConcurrentDup(t *testing.T) {
	const n, parents, rounds = 4, 6, 8
	ctx, cancel := context.WithTimeout(background, testlevel.Patience(20*time.Second)) // contexts that two Comms have can also hang
	defer cancel()
	p2ptest.Run(t, n, func(w *p2p.World) {
		var comms []*p2p.Comm
		for i := range parents {
			if i%2 == 0 {
				comms = append(comms, dup(t, w.Comm()))
			} else {
				comms = append(comms, split(t, w.Comm(), w.Rank()/2, i*w.Rank()))
			}
		}
		var made [parents][]*p2p.Comm
		var all sync.WaitGroup
		for k := range parents {
			i := (k + w.Rank()) % parents
			all.Go(func() {
				for round := range rounds {
					d, err := comms[i].Dup(ctx)
					if !assert.NoError(t, err) {
						return
					}
					if round%2 == 0 {
						assert.NoError(t, d.Close())
					} else {
						made[i] = append(made[i], d)
					}
				}
			})
		}
		all.Wait()
		barrier(t, w.Comm())
		if t.Failed() {
			return
		}
		var recvs []p2p.Request
		var bufs [][]byte
		for i := range made {
			for range made[i] {
				bufs = append(bufs, make([]byte, 2))
			}
		}
		for i, k := 0, 0; i < parents; i++ {
			for _, d := range made[i] {
				recvs = append(recvs, d.Irecv(p2p.AnySource, p2p.AnyTag, bufs[k]))
				k++
			}
		}
		for i := range made {
			for j, d := range made[i] {
				require.NoError(t, d.Send(ctx, (d.Rank()+1)%d.Size(), 0, []byte{byte(i), byte(j)}))
			}
		}
		require.NoError(t, p2p.WaitAll(ctx, recvs, nil))
		for i, k := 0, 0; i < parents; i++ {
			for j := range made[i] {
				require.Equal(t, []byte{byte(i), byte(j)}, bufs[k])
				k++
			}
		}
	})
}

// One rank calls one after the other what the others call at once: none of these may hold, while it
// waits for that rank, what the call needs that it makes first.
func TestDupInSequence(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		first, second := dup(t, w.Comm()), dup(t, w.Comm())
		barrier(t, w.Comm())
		if w.Rank() == 1 {
			eventually(t, func() bool { return w.Metrics().UnexpectedNow == 2 }) // both of rank 0
			dup(t, second)
			dup(t, first)
			return
		}
		done := make(chan error)
		go func() {
			_, err := first.Dup(background)
			done <- err
		}()
		eventually(t, func() bool { return w.Metrics().PostedNow == 1 }) // it waits for rank 1, or for who does
		dup(t, second)
		require.NoError(t, <-done)
	})
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, testlevel.Patience(20*time.Second), time.Millisecond)
}

func TestCollectiveErrors(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		var none context.Context
		ended, cancel := context.WithCancel(background)
		cancel()
		c := dup(t, w.Comm())
		_, err := c.Dup(none)
		require.EqualError(t, err, "p2p: dup: invalid argument: the context is nil: use context.Background where nothing should end the call")
		_, err = c.Split(ended, 0, 0)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, w.Comm().Close(), "p2p: invalid argument: World.Comm lives as long as the World")
		dup(t, c) // none of that counts
		barrier(t, c)
		if w.Rank() == 0 { // alone
			waits, cancel := context.WithCancel(background)
			cancel2 := context.AfterFunc(waits, func() {})
			defer cancel2()
			go cancel()
			_, err = c.Dup(waits)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		_, err = c.Dup(background)
		require.EqualError(t, err, "p2p: dup: communicator closed")
		require.ErrorIs(t, err, p2p.ErrClosed)
		for _, err := range []error{
			c.Send(background, 0, 1, nil), c.Send(background, p2p.ProcNull, 1, nil),
			second(c.Recv(background, p2p.AnySource, p2p.AnyTag, nil)), second(c.Recv(background, p2p.ProcNull, 1, nil)),
			second(c.Isend(0, 1, nil).Wait(background)), second(c.Irecv(0, 1, nil).Wait(background)),
		} {
			require.ErrorIs(t, err, p2p.ErrClosed)
			require.ErrorContains(t, err, "communicator closed")
		}
		require.Equal(t, 2, c.Size())
		require.Equal(t, 1, c.WorldRank(1))
	})
}

func second(_ p2p.Status, err error) error { return err }
