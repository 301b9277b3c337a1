// Package coll has the collective operations that package p2p needs to make communicators. They
// take ceil(log2 n) rounds among n ranks; in each a rank sends one message and receives one.
//
// Concurrency: the ranks of an operation call it once each, in any goroutines. An error ends the
// operation on the rank that has it; the others may wait for that rank until their contexts end.
package coll

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Peers carries the messages of one operation.
type Peers interface {
	Rank() int
	Size() int
	// Exchange sends out to rank to, and fills in with the message that rank from sends in the same
	// round; a message of another length is an error. The receive must be posted before the send
	// waits for anything. When it returns, both buffers are the caller's again.
	Exchange(ctx context.Context, round, to int, out []byte, from int, in []byte) error
}

// And makes words, which are as many on all ranks, the bitwise AND of the words of all ranks.
//
// In round k a rank has the AND of the 2^k ranks that end with itself. Where the number of ranks is
// no power of two the last round counts some of them twice, which an AND does not mind.
func And(ctx context.Context, p Peers, words []uint64) error {
	n, rank := p.Size(), p.Rank()
	out, in := make([]byte, 8*len(words)), make([]byte, 8*len(words))
	for round, step := 0, 1; step < n; round, step = round+1, 2*step {
		for i, w := range words {
			binary.LittleEndian.PutUint64(out[8*i:], w)
		}
		if err := p.Exchange(ctx, round, (rank+step)%n, out, (rank-step+n)%n, in); err != nil {
			return err
		}
		for i := range words {
			words[i] &= binary.LittleEndian.Uint64(in[8*i:])
		}
	}
	return nil
}

// Barrier returns once all ranks have called it.
func Barrier(ctx context.Context, p Peers) error { return And(ctx, p, nil) }

// Gather fills all, a record of the same size for each rank, with the records of all ranks. The
// caller has put its own in its place.
//
// This is Bruck's algorithm: before round k a rank has the records of the 2^k ranks that begin with
// itself, and gets as many more from the rank behind them.
func Gather(ctx context.Context, p Peers, all []byte) error {
	n, rank := p.Size(), p.Rank()
	if len(all)%n != 0 {
		return fmt.Errorf("coll: %d bytes are no records of equal size for %d ranks", len(all), n)
	}
	size := len(all) / n
	turned := make([]byte, len(all)) // the records, from the own one on
	copy(turned, all[rank*size:(rank+1)*size])
	for round, step := 0, 1; step < n; round, step = round+1, 2*step {
		count := min(step, n-step) * size
		to, from := (rank-step+n)%n, (rank+step)%n
		if err := p.Exchange(ctx, round, to, turned[:count], from, turned[step*size:step*size+count]); err != nil {
			return err
		}
	}
	copy(all[rank*size:], turned)
	copy(all, turned[(n-rank)*size:])
	return nil
}
