// Allreduce adds up vectors of all ranks, checks the sums and prints times and bandwidths as
// nccl-tests do.
//
//	go run ./examples/allreduce [-n 4] [-sizes 1k,1m,64m] [-iters 20] [-type float64] [-ring]
//
// Started plainly it launches itself as -n ranks on this host; under a launcher all ranks take
// part. The sums are those of package coll. With -ring they are those of ring.go, which shows how a
// library of collectives uses p2p: docs/embedding.md explains it.
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	code, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "allreduce:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// start launches ranks, or is one.
func start() (code int, err error) {
	sizes := []int{1 << 10, 32 << 10, 1 << 20, 8 << 20, 64 << 20}
	flag.Func("sizes", "`bytes` to add up, separated by commas; k and m are powers of 1024", func(text string) (err error) {
		sizes, err = parseSizes(text)
		return err
	})
	n := flag.Int("n", 2, "`ranks` of the job, where this command starts it")
	iters := flag.Int("iters", 20, "sums of each size")
	kind := flag.String("type", "float32", "`type` of the elements: float32 or float64")
	ring := flag.Bool("ring", false, "add up by the ring of this example")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return 2, fmt.Errorf("unexpected argument %q (-h lists the flags)", flag.Arg(0))
	case *n < 1 || *n > launch.MaxRanks:
		return 2, fmt.Errorf("-n %d: from 1 to %d ranks", *n, launch.MaxRanks)
	case *iters < 1:
		return 2, fmt.Errorf("-iters %d: at least 1", *iters)
	case *kind != "float32" && *kind != "float64":
		return 2, fmt.Errorf("-type %s: float32 or float64", *kind)
	}
	if code, rank, err := launch.Self(*n, launch.Options{}); !rank {
		return code, err
	}
	if *kind == "float32" {
		return 0, run[float32](context.Background(), sizes, *iters, *kind, *ring)
	}
	return 0, run[float64](context.Background(), sizes, *iters, *kind, *ring)
}

// parseSizes reads a list such as 8,1k,4m.
func parseSizes(text string) (sizes []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		digits := strings.TrimRight(part, "km")
		n, err := strconv.Atoi(digits)
		n <<= map[string]int{"k": 10, "m": 20}[part[len(digits):]]
		if err != nil || n < 0 || n > 1<<30 || len(part) > len(digits)+1 {
			return nil, fmt.Errorf("%q is no size from 0 to 1024m", part)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// run is one rank.
func run[T Float](ctx context.Context, sizes []int, iters int, kind string, ring bool) error {
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	sum, end, err := summation[T](ctx, w.Comm(), ring)
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		fmt.Printf("%d ranks, %s\n", w.Size(), kind)
		fmt.Printf("%12s %12s %12s %12s %12s %8s\n", "bytes", "elements", "us", "algbw GB/s", "busbw GB/s", "wrong")
	}
	var wrong int
	for _, size := range sizes {
		bad, err := measure(w, sum, size, iters)
		if err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
		wrong += bad
	}
	if err := end(); err != nil {
		return err
	}
	if err := w.Shutdown(ctx); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d elements are wrong", wrong)
	}
	return nil
}

// summation returns what makes a vector the sum of all ranks' vectors, and what ends that.
func summation[T Float](ctx context.Context, c *p2p.Comm, ring bool) (sum func([]T) error, end func() error, err error) {
	if ring {
		// A library takes a Comm of its own: its messages meet no others.
		own, err := c.Dup(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func(x []T) error { return AllReduce(ctx, own, x) }, own.Close, nil
	}
	g, err := coll.New(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return func(x []T) error { return coll.AllReduce(ctx, g, coll.Sum[T](), x) }, g.Close, nil
}

// measure adds up vectors of one size: it times iters sums between two that it checks.
func measure[T Float](w *p2p.World, sum func([]T) error, size, iters int) (wrong int, err error) {
	// Ranks of one host map this memory, and copy from each other without the kernel.
	memory, err := w.Alloc(max(size, 1))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	data := p2p.Elements[T](memory.Bytes())
	before, err := verify(w, sum, data)
	if err != nil {
		return 0, err
	}
	clear(data) // of zeros, so that the sums do not grow without end
	begin := time.Now()
	for range iters {
		if err := sum(data); err != nil {
			return 0, err
		}
	}
	perSum := time.Since(begin).Seconds() / float64(iters)
	after, err := verify(w, sum, data)
	if err != nil {
		return 0, err
	}
	wrong = before + after
	if w.Rank() == 0 {
		bytes, n := float64(len(p2p.Bytes(data))), float64(w.Size())
		alg := bytes / perSum / 1e9
		fmt.Printf("%12.0f %12d %12.1f %12.2f %12.2f %8d\n", bytes, len(data), perSum*1e6, alg, alg*2*(n-1)/n, wrong)
	}
	return wrong, nil
}

// verify adds up vectors that tell their ranks, and returns how many elements are wrong anywhere.
func verify[T Float](w *p2p.World, sum func([]T) error, data []T) (wrong int, err error) {
	fill(data, w.Rank())
	if err := sum(data); err != nil {
		return 0, err
	}
	count := []T{T(check(data, w.Size()))}
	if err := sum(count); err != nil {
		return 0, err
	}
	return int(count[0]), nil
}
