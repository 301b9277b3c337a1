package jobtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// exchangeAll has each rank send to each, and wait for all at once.
func exchangeAll(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, _, size int) error {
	var reqs []p2p.Request
	for rank := range c.Size() {
		reqs = append(reqs, c.Irecv(rank, tag, make([]byte, size)), c.Isend(rank, tag, make([]byte, size)))
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// randomTraffic has messages between ranks that all have drawn alike: who begins with its receives
// may block in its sends, and the other way round.
func randomTraffic(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, root, size int) error {
	const messages = 40
	rnd := rand.New(rand.NewPCG(uint64(tag), uint64(root)))
	var sends, receives []p2p.Transfer
	for range messages {
		from, to, n := rnd.IntN(c.Size()), rnd.IntN(c.Size()), rnd.IntN(size+1)
		if from == c.Rank() {
			sends = append(sends, p2p.Transfer{Rank: to, Tag: tag, Buf: make([]byte, n)})
		}
		if to == c.Rank() {
			receives = append(receives, p2p.Transfer{Rank: from, Tag: tag, Buf: make([]byte, size)})
		}
	}
	if (c.Rank()+root)%2 == 0 {
		reqs := c.IrecvAll(nil, receives)
		for _, s := range sends {
			if err := c.Send(ctx, s.Rank, tag, s.Buf); err != nil {
				return err
			}
		}
		return p2p.WaitAll(ctx, reqs, nil)
	}
	reqs := c.IsendAll(nil, sends)
	for _, r := range receives {
		if _, err := c.Recv(ctx, r.Rank, tag, r.Buf); err != nil {
			return err
		}
	}
	return p2p.WaitAll(ctx, reqs, nil)
}

// farm has the root hand out tasks to whoever asks, and say to each when there are none.
func farm(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, root, size int) error {
	const tasks = 20
	if c.Rank() != root {
		for task := make([]byte, size); ; {
			st, err := c.Sendrecv(ctx, root, tag, nil, root, tag, task)
			if err != nil || st.Len == 0 {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	for n := range tasks + c.Size() - 1 {
		st, err := c.Recv(ctx, p2p.AnySource, tag, nil)
		if err != nil {
			return err
		}
		task := make([]byte, size)
		if n >= tasks {
			task = nil
		}
		if err := c.Send(ctx, st.Source, tag, task); err != nil {
			return err
		}
	}
	return nil
}

// collectives makes calls of package coll, some of which are started and waited for later.
func collectives(ctx context.Context, c *p2p.Comm, g *coll.Group, _ p2p.Tag, root, size int) error {
	x := make([]int64, size/8+1)
	all := make([]int64, len(x)*c.Size())
	started := coll.StartAllReduce(g, coll.Sum[int64](), []int64{1})
	for _, err := range []error{
		coll.Bcast(ctx, g, root, x), coll.AllGather(ctx, g, all, x), coll.Scan(ctx, g, coll.Max[int64](), x),
		coll.ReduceScatter(ctx, g, coll.Sum[int64](), x, all), coll.AllToAll(ctx, g, make([]int64, len(all)), all), started.Wait(ctx),
	} {
		if err != nil {
			return fmt.Errorf("collective call: %w", err)
		}
	}
	return nil
}
