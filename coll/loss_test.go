package coll_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// waits are calls that wait for each other on all ranks.
var waits = map[string]func(ctx context.Context, g *coll.Group) error{
	"barrier": coll.Barrier,
	"allreduce of a few bytes": func(ctx context.Context, g *coll.Group) error {
		return coll.AllReduce(ctx, g, coll.Sum[int32](), make([]int32, 2))
	},
	"allreduce of many bytes": func(ctx context.Context, g *coll.Group) error {
		return coll.AllReduce(ctx, g, coll.Sum[int32](), make([]int32, 1<<20))
	},
	"started": func(ctx context.Context, g *coll.Group) error {
		if _, bounded := ctx.Deadline(); bounded { // only blocking calls have a context
			return coll.AllReduce(ctx, g, coll.Sum[int32](), make([]int32, 1<<17))
		}
		return coll.StartAllReduce(g, coll.Sum[int32](), make([]int32, 1<<17)).Wait(background)
	},
	"alltoallv": func(ctx context.Context, g *coll.Group) error {
		_, err := coll.AllToAllV(ctx, g, make([][]int64, g.Size()))
		return err
	},
	"allgather": func(ctx context.Context, g *coll.Group) error {
		return coll.AllGather(ctx, g, make([]int64, 10000*g.Size()), make([]int64, 10000))
	},
}

// TestGivingUp: a member whose context ends breaks the Group for all, who learn which one and why.
func TestGivingUp(t *testing.T) {
	for name, operation := range waits {
		givingUp(t, name, operation)
	}
	t.Setenv(coll.Environment, "barrier:dissemination,allreduce:doubling")
	for name, operation := range waits {
		givingUp(t, name+" in rounds", operation)
	}
}

func givingUp(t *testing.T, name string, operation func(context.Context, *coll.Group) error) {
	t.Run(name, func(t *testing.T) {
		each(t, 5, func(g *coll.Group, w *p2p.World) {
			assert.NoError(t, operation(background, g))
			assert.NoError(t, w.Comm().Barrier(background)) // the first call is over for all
			switch g.Rank() {
			case 0: // all others wait for it
				_, err := w.Comm().Recv(background, 3, 1, nil)
				assert.NoError(t, err)
			case 3:
				ctx, end := context.WithTimeout(background, 20*time.Millisecond)
				defer end()
				assert.ErrorIs(t, operation(ctx, g), context.DeadlineExceeded)
				err := coll.Barrier(background, g)
				assert.ErrorIs(t, err, p2p.ErrRevoked, "the Group stays broken")
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "this call has no deadline")
				assert.NoError(t, w.Comm().Send(background, 0, 1, nil))
				return
			}
			err := operation(background, g)
			assert.ErrorIs(t, err, p2p.ErrRevoked)
			assert.ErrorContains(t, err, "rank 3")
			assert.ErrorContains(t, err, context.DeadlineExceeded.Error())
		})
	})
}

// TestCloseUnderWay: Close ends an operation under way on all members.
func TestCloseUnderWay(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		g, err := coll.New(background, w.Comm())
		require.NoError(t, err)
		assert.NoError(t, w.Comm().Barrier(background)) // all have a Group
		switch g.Rank() {
		case 0:
			p := coll.StartBarrier(g)
			assert.NoError(t, g.Close())
			assert.Error(t, p.Wait(background))
		case 1:
			assert.ErrorIs(t, coll.Barrier(background, g), p2p.ErrRevoked)
			assert.NoError(t, w.Comm().Send(background, 2, 1, nil))
		case 2:
			_, err := w.Comm().Recv(background, 1, 1, nil)
			assert.NoError(t, err)
			err = coll.Barrier(background, g)
			assert.ErrorIs(t, err, p2p.ErrRevoked)
			assert.ErrorContains(t, err, "a member closes the Group while operations are under way")
		}
		assert.NoError(t, g.Close())
	})
}

// TestLoss: a rank leaves at any moment. All others hear of it, whatever they wait for, go on with
// the same members, and agree on the smallest value.
func TestLoss(t *testing.T) {
	const n = 6
	for _, device := range []string{"", "shm", "tcp"} {
		for leaver := range 3 {
			t.Run(fmt.Sprintf("%s/%d", device, leaver), func(t *testing.T) {
				var mu sync.Mutex
				members := map[string]int{}
				var left sync.WaitGroup // who has lost a rank ends by Close, when all others are done
				left.Add(n - 1)
				p2ptest.RunConfig(t, n, p2p.Config{Device: device}, func(w *p2p.World) {
					g, err := coll.New(background, w.Comm())
					require.NoError(t, err)
					x := make([]int64, 1000)
					step := int64(0)
					for ; err == nil && step < 1000; step++ {
						if w.Rank() == leaver*2 && step == 5 {
							w.Close()
							return
						}
						err = coll.AllReduce(background, g, coll.Sum[int64](), x)
					}
					assert.Error(t, err)
					old := g
					g, least, err := old.Shrink(background, step)
					if !assert.NoError(t, err) {
						left.Done()
						return
					}
					assert.NoError(t, old.Close())
					assert.Equal(t, n-1, g.Size())
					x[0] = int64(w.Rank())
					assert.NoError(t, coll.AllReduce(background, g, coll.Sum[int64](), x[:1]))
					mu.Lock()
					members[fmt.Sprint(x[0], least)]++
					mu.Unlock()
					assert.NoError(t, g.Close())
					left.Done()
					left.Wait()
					w.Close()
				})
				assert.Len(t, members, 1)
				for _, ranks := range members {
					assert.Equal(t, n-1, ranks)
				}
			})
		}
	}
}

// TestShrinkEndsOthers: a member that shrinks, though nothing has failed, ends the operation in
// which the others wait for it.
func TestShrinkEndsOthers(t *testing.T) {
	each(t, 3, func(g *coll.Group, w *p2p.World) {
		assert.NoError(t, w.Comm().Barrier(background)) // all have a Group
		if w.Rank() != 0 {
			ctx, end := context.WithTimeout(background, testlevel.Patience(20*time.Second))
			defer end()
			assert.ErrorIs(t, coll.Barrier(ctx, g), p2p.ErrRevoked)
		}
		n, least, err := g.Shrink(background, int64(w.Rank()))
		if assert.NoError(t, err) {
			assert.Zero(t, least)
			assert.NoError(t, coll.Barrier(background, n))
			assert.NoError(t, n.Close())
		}
	})
}

// TestNewBeforeAnother: a member that is through New earlier, and breaks the Group, or closes it,
// fails no other one in New.
func TestNewBeforeAnother(t *testing.T) {
	times := 60
	if testlevel.CI() {
		times = 300
	}
	p2ptest.Run(t, 5, func(w *p2p.World) {
		ended, end := context.WithCancel(background)
		end()
		for i := range times {
			g, err := coll.New(background, w.Comm())
			if !assert.NoError(t, err) {
				return
			}
			if i%5 == w.Rank() {
				assert.ErrorIs(t, coll.Barrier(ended, g), context.Canceled)
			}
			assert.NoError(t, g.Close())
		}
	})
}
