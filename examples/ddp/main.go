// Ddp trains a linear model on several ranks: each has a share of the samples, and all add up their
// gradients, bucket by bucket, while the next bucket is computed. Lost ranks are left behind.
//
//	go run ./cmd/tagmatch run -n 5 --keep-going -- go run ./examples/ddp [-steps 300] [-die 1,3]
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

const buckets, width, samples = 4, 256, 64 // width is that of a bucket

// model is one rank's copy: weights after as many steps, and those one step before.
type model struct {
	step            int64
	weights, before [buckets * width]float32
}

func main() {
	steps := flag.Int64("steps", 300, "`steps` of the training")
	die := flag.String("die", "", "`ranks`, with commas, that end themselves at some moment")
	flag.Parse()
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		log.Fatal(err)
	}
	g, err := coll.New(ctx, w.Comm())
	death := time.AfterFunc(time.Hour, func() { os.Exit(9) })
	if slices.Contains(strings.Split(*die, ","), fmt.Sprint(w.Rank())) {
		death.Reset(rand.N(300 * time.Millisecond))
	}
	var m model
	// All members agree by Shrink on the last step of each, and at the end that all are done.
	for done := int64(0); err == nil && done <= *steps; {
		failed := m.train(ctx, g, *steps)
		finished := m.step
		if failed == nil {
			finished++ // its weights are those of all
		} else {
			log.Printf("rank %d, after %d steps: %v", w.Rank(), m.step, failed)
		}
		old := g
		if g, done, err = old.Shrink(ctx, finished); err == nil && done < m.step {
			m.weights, m.step = m.before, done // the others have not finished the last step
		}
		_ = old.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
	death.Stop() // the training is over
	fmt.Printf("%d of %d ranks, %d steps, weights %.4f\n", g.Size(), w.Size(), m.step, m.weights[:3])
	if err := w.Shutdown(ctx); err != nil && !errors.Is(err, p2p.ErrPeerLost) {
		log.Fatal(err)
	}
}

// train goes on to the last step, and returns when all members have the same weights.
func (m *model) train(ctx context.Context, g *coll.Group, steps int64) error {
	for m.step < steps {
		var gradient [buckets * width]float32
		var sums [buckets]*coll.Pending
		for b := range buckets {
			part := gradient[b*width : (b+1)*width]
			m.backward(g, b, part)
			sums[b] = coll.StartAllReduce(g, coll.Sum[float32](), part)
		}
		for _, sum := range sums {
			if err := sum.Wait(ctx); err != nil {
				return err
			}
		}
		m.before = m.weights
		for i := range m.weights {
			m.weights[i] -= 0.3 * gradient[i] / samples
		}
		m.step++
	}
	low, high := m.weights, m.weights
	if err := errors.Join(coll.AllReduce(ctx, g, coll.Min[float32](), low[:]), coll.AllReduce(ctx, g, coll.Max[float32](), high[:])); err != nil {
		return err
	}
	if low != high {
		log.Fatal("ranks have differing weights")
	}
	_ = coll.Barrier(ctx, g) // Shrink ends what others are still in
	return nil
}

// backward adds up the gradient of a bucket over this member's samples.
func (m *model) backward(g *coll.Group, bucket int, gradient []float32) {
	for s := g.Rank(); s < samples; s += g.Size() {
		r := rand.New(rand.NewPCG(uint64(s), uint64(bucket)))
		for i := range gradient {
			x := r.Float32()
			truth := float32(i % 7) // which the weights approach
			gradient[i] += (m.weights[bucket*width+i] - truth) * x * x
		}
	}
}
