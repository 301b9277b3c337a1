// Samplesort sorts numbers that all ranks have: afterwards each rank has a range of them, in order.
//
//	go run ./examples/samplesort [-n 4] [-count 1000000]
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
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	n := flag.Int("n", 4, "`ranks` of the job, where this command starts it")
	count := flag.Uint("count", 1_000_000, "`numbers` of each rank, at least 1")
	flag.Parse()
	code, rank, err := launch.Self(*n, launch.Options{})
	if rank {
		err = run(context.Background(), max(*count, 1))
	}
	if err != nil {
		log.Print(err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, count uint) error {
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	g, err := coll.New(ctx, w.Comm())
	if err != nil {
		return err
	}
	numbers := make([]uint64, count)
	for i := range numbers {
		numbers[i] = rand.Uint64()
	}
	before, err := check(ctx, g, numbers)
	if err != nil {
		return err
	}
	begin := time.Now()
	sorted, err := samplesort(ctx, g, numbers)
	took := time.Since(begin)
	if err != nil {
		return err
	}
	after, err := check(ctx, g, sorted)
	switch {
	case err != nil:
		return err
	case after != [3]uint64{before[0], before[1], 0}:
		return errors.New("the result is wrong")
	case g.Rank() == 0:
		fmt.Printf("%d ranks sorted %d numbers in %v\n", g.Size(), before[0], took.Round(time.Millisecond))
	}
	return w.Shutdown(ctx)
}

// samplesort cuts the numbers at splitters, on which the ranks agree by samples, and sends each
// rank its range.
func samplesort(ctx context.Context, g *coll.Group, numbers []uint64) ([]uint64, error) {
	slices.Sort(numbers)
	const each = 64
	sample := make([]uint64, each)
	for i := range sample {
		sample[i] = numbers[i*len(numbers)/each]
	}
	samples := make([]uint64, each*g.Size())
	if err := coll.AllGather(ctx, g, samples, sample); err != nil {
		return nil, err
	}
	slices.Sort(samples)
	pieces := make([][]uint64, g.Size())
	for i := range pieces {
		end := len(numbers)
		if i+1 < len(pieces) {
			end, _ = slices.BinarySearch(numbers, samples[(i+1)*each])
		}
		pieces[i], numbers = numbers[:end], numbers[end:]
	}
	got, err := coll.AllToAllV(ctx, g, pieces)
	sorted := slices.Concat(got...)
	slices.Sort(sorted)
	return sorted, err
}

// check is how many numbers all ranks have, their sum, and how many are lower than one before them.
func check(ctx context.Context, g *coll.Group, numbers []uint64) (t [3]uint64, err error) {
	highest := []uint64{slices.Max(append([]uint64{0}, numbers...))}
	if err := coll.ExScan(ctx, g, coll.Max[uint64](), highest); err != nil {
		return t, err
	}
	if g.Rank() == 0 { // which has no ranks before it
		highest[0] = 0
	}
	for i, v := range numbers {
		t[0], t[1] = t[0]+1, t[1]+v
		if v < highest[0] || i > 0 && v < numbers[i-1] {
			t[2]++
		}
	}
	return t, coll.AllReduce(ctx, g, coll.Sum[uint64](), t[:])
}
