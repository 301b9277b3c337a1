package coll

import "context"

// Barrier returns when all members have called it.
func Barrier(ctx context.Context, g *Group) error { return g.run(g.barrier(ctx)) }

// StartBarrier starts a Barrier.
func StartBarrier(g *Group) *Pending {
	return start(g.barrier(context.Background()), func(c *call) error { return c.g.run(c) })
}

func (g *Group) barrier(ctx context.Context) *call { return g.begin(ctx, barrier) }

// Bcast makes x on all members what it is on member root.
func Bcast[T any](ctx context.Context, g *Group, root int, x []T) error {
	return g.run(newBcast(ctx, g, root, x))
}

// StartBcast starts a Bcast.
func StartBcast[T any](g *Group, root int, x []T) *Pending {
	return start(newBcast(context.Background(), g, root, x), func(c *call) error { return c.g.run(c) })
}

func newBcast[T any](ctx context.Context, g *Group, root int, x []T) *call {
	c := newCall[T](ctx, g, bcast)
	c.from(root)
	c.in = bytesOf(x)
	return c
}

// Reduce makes x on member root the combination of x of all members. On the others x is as before.
func Reduce[T any](ctx context.Context, g *Group, root int, op Op[T], x []T) error {
	return g.run(newReduce(ctx, g, root, op, x))
}

// StartReduce starts a Reduce.
func StartReduce[T any](g *Group, root int, op Op[T], x []T) *Pending {
	return start(newReduce(context.Background(), g, root, op, x), func(c *call) error { return c.g.run(c) })
}

func newReduce[T any](ctx context.Context, g *Group, root int, op Op[T], x []T) *call {
	c := newCombination(ctx, g, reduce, op, x)
	c.from(root)
	return c
}

// AllReduce makes x on all members the combination of x of all members.
func AllReduce[T any](ctx context.Context, g *Group, op Op[T], x []T) error {
	return g.run(newCombination(ctx, g, allReduce, op, x))
}

// StartAllReduce starts an AllReduce.
func StartAllReduce[T any](g *Group, op Op[T], x []T) *Pending {
	return start(newCombination(context.Background(), g, allReduce, op, x), func(c *call) error { return c.g.run(c) })
}

// Scan makes x the combination of x of all members up to this one.
func Scan[T any](ctx context.Context, g *Group, op Op[T], x []T) error {
	return g.run(newCombination(ctx, g, scan, op, x))
}

// StartScan starts a Scan.
func StartScan[T any](g *Group, op Op[T], x []T) *Pending {
	return start(newCombination(context.Background(), g, scan, op, x), func(c *call) error { return c.g.run(c) })
}

// ExScan makes x the combination of x of all members before this one. On member 0 x is as before.
func ExScan[T any](ctx context.Context, g *Group, op Op[T], x []T) error {
	return g.run(newCombination(ctx, g, exScan, op, x))
}

// StartExScan starts an ExScan.
func StartExScan[T any](g *Group, op Op[T], x []T) *Pending {
	return start(newCombination(context.Background(), g, exScan, op, x), func(c *call) error { return c.g.run(c) })
}

// ReduceScatter makes mine this member's block of the combination of all of all members. all has a
// block as long as mine for each member, and stays as it is.
func ReduceScatter[T any](ctx context.Context, g *Group, op Op[T], mine, all []T) error {
	return g.run(newReduceScatter(ctx, g, op, mine, all))
}

// StartReduceScatter starts a ReduceScatter.
func StartReduceScatter[T any](g *Group, op Op[T], mine, all []T) *Pending {
	return start(newReduceScatter(context.Background(), g, op, mine, all), func(c *call) error { return c.g.run(c) })
}

func newReduceScatter[T any](ctx context.Context, g *Group, op Op[T], mine, all []T) *call {
	c := newCombination(ctx, g, reduceScatter, op, all)
	c.out = bytesOf(mine)
	c.blocksOf(len(all), len(mine))
	return c
}

// Gather puts mine of all members into all on member root, by rank. On the others all is not used,
// and may be nil.
func Gather[T any](ctx context.Context, g *Group, root int, all, mine []T) error {
	return g.run(newGather(ctx, g, root, all, mine))
}

// StartGather starts a Gather.
func StartGather[T any](g *Group, root int, all, mine []T) *Pending {
	return start(newGather(context.Background(), g, root, all, mine), func(c *call) error { return c.g.run(c) })
}

func newGather[T any](ctx context.Context, g *Group, root int, all, mine []T) *call {
	c := newCall[T](ctx, g, gather)
	c.from(root)
	c.in = bytesOf(mine)
	if root == g.Rank() {
		c.out = bytesOf(all)
		c.blocksOf(len(all), len(mine))
	}
	return c
}

// Scatter makes mine this member's block of all on member root. On the others all is not used, and
// may be nil.
func Scatter[T any](ctx context.Context, g *Group, root int, mine, all []T) error {
	return g.run(newScatter(ctx, g, root, mine, all))
}

// StartScatter starts a Scatter.
func StartScatter[T any](g *Group, root int, mine, all []T) *Pending {
	return start(newScatter(context.Background(), g, root, mine, all), func(c *call) error { return c.g.run(c) })
}

func newScatter[T any](ctx context.Context, g *Group, root int, mine, all []T) *call {
	c := newCall[T](ctx, g, scatter)
	c.from(root)
	c.out = bytesOf(mine)
	if root == g.Rank() {
		c.in = bytesOf(all)
		c.blocksOf(len(all), len(mine))
	}
	return c
}

// AllGather puts mine of all members into all, by rank.
func AllGather[T any](ctx context.Context, g *Group, all, mine []T) error {
	return g.run(newAllGather(ctx, g, all, mine))
}

// StartAllGather starts an AllGather.
func StartAllGather[T any](g *Group, all, mine []T) *Pending {
	return start(newAllGather(context.Background(), g, all, mine), func(c *call) error { return c.g.run(c) })
}

func newAllGather[T any](ctx context.Context, g *Group, all, mine []T) *call {
	c := newCall[T](ctx, g, allGather)
	c.in, c.out = bytesOf(mine), bytesOf(all)
	c.blocksOf(len(all), len(mine))
	return c
}

// AllToAll sends block i of send to member i, and makes block i of recv what that sends here. Both
// have the same length, a multiple of the Group's size.
func AllToAll[T any](ctx context.Context, g *Group, recv, send []T) error {
	return g.run(newAllToAll(ctx, g, recv, send))
}

// StartAllToAll starts an AllToAll.
func StartAllToAll[T any](g *Group, recv, send []T) *Pending {
	return start(newAllToAll(context.Background(), g, recv, send), func(c *call) error { return c.g.run(c) })
}

func newAllToAll[T any](ctx context.Context, g *Group, recv, send []T) *call {
	c := newCall[T](ctx, g, allToAll)
	c.in, c.out = bytesOf(send), bytesOf(recv)
	if len(recv) != len(send) || len(send)%g.Size() != 0 {
		c.refuse("recv has %d elements and send %d: both must have the same number, a multiple of the %d members", len(recv), len(send), g.Size())
	}
	return c
}
