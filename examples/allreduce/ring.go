package main

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/tagmatch/tagmatch/p2p"
)

// Float is what AllReduce adds up.
type Float interface{ ~float32 | ~float64 }

// Chunks of a block go round independently, in a goroutine each: a rank adds up one while others
// are on their way.
const (
	chunkBytes = 256 << 10
	atOnce     = 8 // chunks
)

// AllReduce makes every element of data the sum of that element on all ranks of c. All ranks call
// it, with as many elements; c is for it alone meanwhile. After an error data is undefined. If ctx
// ends first AllReduce gives up, and returns when no message uses data any more.
func AllReduce[T Float](ctx context.Context, c *p2p.Comm, data []T) error {
	block := (len(data) + c.Size() - 1) / c.Size() // elements; the last blocks may have fewer
	most := chunkBytes / len(p2p.Bytes([]T{0}))
	chunks, ctx := errgroup.WithContext(ctx)
	chunks.SetLimit(atOnce)
	scratch := make([]T, block)
	for at := 0; at < block; at += most {
		tag := p2p.Tag(at / most)
		chunks.Go(func() error {
			return ring(ctx, c, tag, part(scratch, at, most), func(k int) []T {
				return part(part(data, k*block, block), at, most)
			})
		})
	}
	return chunks.Wait()
}

// ring adds up one chunk of each block, which of gives. In step s a rank sends block rank-s to the
// next rank and receives block rank-s-1 from the previous one. In the first n-1 steps it adds what
// it receives to its own: after them each rank has the sum of one block. In the other n-1 steps it
// replaces its own by what it receives. So each rank sends 2(n-1)/n of the data.
func ring[T Float](ctx context.Context, c *p2p.Comm, tag p2p.Tag, scratch []T, of func(block int) []T) error {
	n, rank := c.Size(), c.Rank()
	for step := range 2 * (n - 1) {
		out, own := of((rank-step+2*n)%n), of((rank-step-1+2*n)%n)
		into := own
		if step < n-1 {
			into = scratch[:len(own)]
		}
		if _, err := c.Sendrecv(ctx, (rank+1)%n, tag, p2p.Bytes(out), (rank+n-1)%n, tag, p2p.Bytes(into)); err != nil {
			return err
		}
		if step < n-1 {
			for i, v := range into {
				own[i] += v
			}
		}
	}
	return nil
}

// part is up to n elements from index from on.
func part[T any](s []T, from, n int) []T {
	from = min(from, len(s))
	return s[from:min(from+n, len(s))]
}

// check counts the elements that are not the sum that they should be.
func check[T Float](data []T, ranks int) (wrong int) {
	for i, v := range data {
		if float64(v) != float64(ranks*(i%251)+ranks*(ranks-1)/2) {
			wrong++
		}
	}
	return wrong
}

// fill gives each element a small whole number, whose sums are exact.
func fill[T Float](data []T, rank int) {
	for i := range data {
		data[i] = T(i%251 + rank)
	}
}
