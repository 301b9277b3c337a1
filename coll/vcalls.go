package coll

import "context"

// The V calls move pieces of any lengths: who receives learns them with the messages. What they
// return are new slices, also of the member's own piece.

// GatherV returns, on member root, mine of all members by rank, and nil on the others.
func GatherV[T any](ctx context.Context, g *Group, root int, mine []T) ([][]T, error) {
	var all [][]T
	err := g.run(newGatherV(ctx, g, root, mine, &all))
	return result(all, err)
}

// StartGatherV starts a GatherV, which sets *all.
func StartGatherV[T any](g *Group, root int, mine []T, all *[][]T) *Pending {
	return start(newGatherV(context.Background(), g, root, mine, all), func(c *call) error { return c.g.run(c) })
}

func newGatherV[T any](ctx context.Context, g *Group, root int, mine []T, all *[][]T) *call {
	c := newCall[T](ctx, g, gatherV)
	c.from(root)
	c.in = bytesOf(mine)
	if *all = nil; root == g.Rank() {
		*all = make([][]T, g.Size())
		c.alloc = into(*all)
	}
	return c
}

// ScatterV returns piece i of all on member root at member i. On the others all is not used.
func ScatterV[T any](ctx context.Context, g *Group, root int, all [][]T) ([]T, error) {
	var mine []T
	err := g.run(newScatterV(ctx, g, root, all, &mine))
	return result(mine, err)
}

// StartScatterV starts a ScatterV, which sets *mine.
func StartScatterV[T any](g *Group, root int, all [][]T, mine *[]T) *Pending {
	return start(newScatterV(context.Background(), g, root, all, mine), func(c *call) error { return c.g.run(c) })
}

func newScatterV[T any](ctx context.Context, g *Group, root int, all [][]T, mine *[]T) *call {
	c := newCall[T](ctx, g, scatterV)
	c.from(root)
	if root == g.Rank() {
		c.pieces = piecesOf(c, all)
	}
	c.alloc = func(_, n int) []byte {
		*mine = make([]T, n/c.element)
		return bytesOf(*mine)
	}
	return c
}

// AllGatherV returns mine of all members, by rank.
func AllGatherV[T any](ctx context.Context, g *Group, mine []T) ([][]T, error) {
	var all [][]T
	err := g.run(newAllGatherV(ctx, g, mine, &all))
	return result(all, err)
}

// StartAllGatherV starts an AllGatherV, which sets *all.
func StartAllGatherV[T any](g *Group, mine []T, all *[][]T) *Pending {
	return start(newAllGatherV(context.Background(), g, mine, all), func(c *call) error { return c.g.run(c) })
}

func newAllGatherV[T any](ctx context.Context, g *Group, mine []T, all *[][]T) *call {
	c := newCall[T](ctx, g, allGatherV)
	c.in = bytesOf(mine)
	*all = make([][]T, g.Size())
	c.alloc = into(*all)
	return c
}

// AllToAllV sends send[i] to member i, and returns what the members send here, by rank.
func AllToAllV[T any](ctx context.Context, g *Group, send [][]T) ([][]T, error) {
	var recv [][]T
	err := g.run(newAllToAllV(ctx, g, send, &recv))
	return result(recv, err)
}

// StartAllToAllV starts an AllToAllV, which sets *recv.
func StartAllToAllV[T any](g *Group, send [][]T, recv *[][]T) *Pending {
	return start(newAllToAllV(context.Background(), g, send, recv), func(c *call) error { return c.g.run(c) })
}

func newAllToAllV[T any](ctx context.Context, g *Group, send [][]T, recv *[][]T) *call {
	c := newCall[T](ctx, g, allToAllV)
	c.pieces = piecesOf(c, send)
	*recv = make([][]T, g.Size())
	c.alloc = into(*recv)
	return c
}

// into makes room in all, by rank.
func into[T any](all [][]T) func(from, n int) []byte {
	var zero [1]T
	size := len(bytesOf(zero[:]))
	return func(from, n int) []byte {
		all[from] = make([]T, n/size)
		return bytesOf(all[from])
	}
}

// piecesOf is a piece for each member.
func piecesOf[T any](c *call, all [][]T) [][]byte {
	if len(all) != c.size() {
		c.refuse("there are %d pieces for %d members", len(all), c.size())
		return nil
	}
	list := make([][]byte, len(all))
	for i := range all {
		list[i] = bytesOf(all[i])
	}
	return list
}

// result is what a call returns.
func result[T any](x []T, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return x, nil
}
