package p2p_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// A loop over All gets each completion once; what it does not reach is left to others; its context
// and the end of the queue end it.
func TestQueueAll(t *testing.T) {
	onWirings(t, 2, offloaded, func(t *testing.T, w *p2p.World) {
		const n = 50
		q, peer := w.NewQueue(2*n), 1-w.Rank()
		for i := range n {
			w.Comm().Irecv(peer, p2p.Tag(i), make([]byte, i)).Notify(q, uint64(i))
		}
		for i := range n {
			require.NoError(t, w.Comm().Send(background, peer, p2p.Tag(i), make([]byte, i)))
		}
		got := map[uint64]p2p.Status{}
		soon, cancel := context.WithTimeout(background, testlevel.Patience(30*time.Second))
		defer cancel()
		for loop := range 2 {
			for c, err := range q.All(soon) {
				require.NoError(t, err)
				require.NoError(t, c.Err)
				require.NotContains(t, got, c.Data)
				if got[c.Data] = c.Status; len(got) == n/2*(loop+1) {
					break
				}
			}
		}
		for i := range n {
			require.Equal(t, p2p.Status{Source: peer, Tag: p2p.Tag(i), Len: int64(i)}, got[uint64(i)])
		}
		ended, end := context.WithCancel(background)
		go end()
		requireAllEnds(t, q, ended, context.Canceled)
		var none context.Context
		requireAllEnds(t, q, none, p2p.ErrInvalid)
		w.Comm().Isend(p2p.ProcNull, 1, nil).Notify(q, 77)
		for c, err := range q.All(background) { // an operation's error would be the completion's
			require.NoError(t, err)
			require.Equal(t, uint64(77), c.Data)
			require.NoError(t, q.Close())
			break
		}
		requireAllEnds(t, q, background, p2p.ErrClosed)
	})
}

// requireAllEnds requires that All yields an error alone, and nothing behind it.
func requireAllEnds(t *testing.T, q *p2p.Queue, ctx context.Context, want error) {
	times := 0
	for c, err := range q.All(ctx) {
		require.ErrorIs(t, err, want)
		require.Zero(t, c)
		times++
	}
	require.Equal(t, 1, times)
}

// Many goroutines share a queue, each completion goes to one of them, and the end of the World ends
// all their loops.
func TestQueueAllShared(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		const n, loops = 1000, 4
		q := w.NewQueue(n)
		var mu sync.Mutex
		seen := make([]int, n)
		var left sync.WaitGroup
		left.Add(n)
		var readers sync.WaitGroup
		for range loops {
			readers.Go(func() {
				for c, err := range q.All(background) {
					if err != nil {
						assert.ErrorIs(t, err, p2p.ErrClosed)
						return
					}
					mu.Lock()
					seen[c.Data]++
					mu.Unlock()
					left.Done()
				}
			})
		}
		for i := range n {
			w.Comm().Isend(p2p.ProcNull, 1, nil).Notify(q, uint64(i))
		}
		left.Wait()
		require.NoError(t, w.Close())
		readers.Wait()
		for i := range seen {
			require.Equal(t, 1, seen[i])
		}
	})
}
