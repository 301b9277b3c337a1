package main

import (
	"context"
	"errors"

	"github.com/tagmatch/tagmatch/p2p"
)

// Float is what AllReduce adds up.
type Float interface{ ~float32 | ~float64 }

// chunkBytes is how much of a block goes in one message: chunks of a block move independently, so
// that the ranks add up some while others are on their way.
const chunkBytes = 256 << 10

// AllReduce makes every element of data the sum of that element on all ranks of c. All ranks call
// it, with as many elements; c is for it alone meanwhile. After an error data is undefined. If ctx
// ends first AllReduce gives up, and returns when no message uses data any more.
//
// The ranks are a ring, and data has a block for each. In step s a rank sends block rank-s to the
// next rank and receives block rank-s-1 from the previous one. In the first n-1 steps it adds what
// it receives to its own: after them each rank has the sum of one block. In the other n-1 steps it
// replaces its own by what it receives. So each rank sends 2(n-1)/n of the data.
func AllReduce[T Float](ctx context.Context, c *p2p.Comm, data []T) error {
	if c.Size() == 1 {
		return nil
	}
	r := newRing(c, data)
	defer r.queue.Close()
	for k := range r.chunks {
		r.send(k, 0)
		r.receive(k)
	}
	err := r.run(ctx)
	if err != nil { // what is under way uses data
		r.giveUp = true
		r.queue.Cancel()
		err = errors.Join(err, r.run(context.Background()))
	}
	return err
}

// run goes on until no request is open.
func (r *ring[T]) run(ctx context.Context) error {
	if r.open == 0 {
		return nil
	}
	for d, err := range r.queue.All(ctx) {
		if err != nil {
			return err
		}
		r.open--
		if !r.giveUp {
			if d.Err != nil {
				return d.Err
			}
			r.completed(int(d.Data>>2), d.Data&3)
		}
		if r.open == 0 {
			break
		}
	}
	return nil
}

// ring is one AllReduce on one rank.
type ring[T Float] struct {
	c      *p2p.Comm
	queue  *p2p.Queue // all requests are in it
	data   []T
	block  int // elements of a block; the last blocks may have fewer
	most   int // elements of a chunk
	chunks []chunk[T]
	open   int // requests that are not complete
	giveUp bool
}

// chunk is the same part of every block.
type chunk[T Float] struct {
	step    int  // that it is received in
	adding  int  // sends of the steps that add, which are not complete
	arrived bool // in the step before, and is not received yet in this one
	scratch []T  // where it is received to be added
}

// What a completion says of its chunk, in the low bits of its data.
const (
	received   = 1 + iota
	sentAdding // in a step that adds
	sentSum
)

func newRing[T Float](c *p2p.Comm, data []T) *ring[T] {
	n := c.Size()
	r := &ring[T]{c: c, data: data, block: (len(data) + n - 1) / n, most: chunkBytes / len(p2p.Bytes([]T{0}))}
	r.chunks = make([]chunk[T], max((r.block+r.most-1)/r.most, 1))
	r.queue = c.World().NewQueue(2 * len(r.chunks))
	scratch := make([]T, r.block)
	for k := range r.chunks {
		r.chunks[k].scratch = part(scratch, k*r.most, r.most)
	}
	return r
}

// part is up to n elements from index from on.
func part[T any](s []T, from, n int) []T {
	from = min(from, len(s))
	return s[from:min(from+n, len(s))]
}

// at is chunk k of the block that is sent in a step; in the step before it was received.
func (r *ring[T]) at(k, step int) []T {
	n := r.c.Size()
	block := ((r.c.Rank()-step)%n + n) % n
	return part(part(r.data, block*r.block, r.block), k*r.most, r.most)
}

// send sends chunk k. Messages of a chunk have its number as their tag, and arrive in the order of
// their steps.
func (r *ring[T]) send(k, step int) {
	n, what := r.c.Size(), uint64(sentSum)
	if step < n-1 {
		r.chunks[k].adding++
		what = sentAdding
	}
	r.open++
	r.c.Isend((r.c.Rank()+1)%n, p2p.Tag(k), p2p.Bytes(r.at(k, step))).Notify(r.queue, uint64(k)<<2|what)
}

// receive receives chunk k in its step.
func (r *ring[T]) receive(k int) {
	n, ch := r.c.Size(), &r.chunks[k]
	into := r.at(k, ch.step+1)
	if ch.step < n-1 {
		into = ch.scratch[:len(into)]
	}
	r.open++
	r.c.Irecv((r.c.Rank()+n-1)%n, p2p.Tag(k), p2p.Bytes(into)).Notify(r.queue, uint64(k)<<2|received)
}

// completed goes on with chunk k, one of whose messages was sent or received.
func (r *ring[T]) completed(k int, what uint64) {
	n, ch := r.c.Size(), &r.chunks[k]
	switch what {
	case sentAdding:
		ch.adding--
	case received:
		if ch.step < n-1 {
			own := r.at(k, ch.step+1)
			for i, v := range ch.scratch[:len(own)] {
				own[i] += v
			}
		}
		ch.step++
		if ch.step < 2*n-2 {
			r.send(k, ch.step)
			ch.arrived = true
		}
	}
	// A sum replaces what was sent in a step that adds: not before that was sent.
	if ch.arrived && (ch.step < n-1 || ch.adding == 0) {
		ch.arrived = false
		r.receive(k)
	}
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
