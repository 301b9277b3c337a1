// Cg solves the Poisson equation on a square grid by conjugate gradients. Each rank has some of the
// rows: neighbours exchange their edges, and all add up scalar products.
//
//	go run ./examples/cg [-n 4] [-grid 500]
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	n := flag.Int("n", 4, "`ranks` of the job, where this command starts it")
	side := flag.Int("grid", 500, "`points` of a side")
	flag.Parse()
	code, rank, err := launch.Self(*n, launch.Options{})
	if rank {
		err = run(context.Background(), *side)
	}
	if err != nil {
		log.Print(err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, side int) error {
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	if side < w.Size() {
		return fmt.Errorf("-grid %d: each of %d ranks takes a row at least", side, w.Size())
	}
	g, err := coll.New(ctx, w.Comm())
	if err != nil {
		return err
	}
	// A rank's rows lie between those of its neighbours, which are zeros at the ends of the grid.
	n := (g.Rank()+1)*side/g.Size() - g.Rank()*side/g.Size()
	vector := func() []float64 { return make([]float64, (n+2)*side) }
	x, r, p, q := vector(), vector(), vector(), vector()
	for i := side; i < (n+1)*side; i++ {
		r[i], p[i] = 1, 1
	}
	// The scalar product has the same bits on all ranks, so that all take as many steps.
	dot := func(a, b []float64) float64 {
		sum := []float64{0}
		for i := side; i < (n+1)*side; i++ {
			sum[0] += a[i] * b[i]
		}
		err = errors.Join(err, coll.AllReduce(ctx, g, coll.Sum[float64](), sum))
		return sum[0]
	}
	first := dot(r, r)
	now, steps := first, 0
	for ; err == nil && now > 1e-16*first; steps++ {
		if err := laplace(ctx, w.Comm(), q, p, n, side); err != nil {
			return err
		}
		along := now / dot(p, q)
		for i := range x {
			x[i] += along * p[i]
			r[i] -= along * q[i]
		}
		before := now
		now = dot(r, r)
		for i := range p {
			p[i] = r[i] + now/before*p[i]
		}
	}
	switch {
	case err != nil:
		return err
	case g.Rank() == 0:
		fmt.Printf("%d ranks, %d x %d points: residual %.1e after %d steps\n", g.Size(), side, side, math.Sqrt(now/first), steps)
	}
	return w.Shutdown(ctx)
}

// laplace makes y four times x less its neighbours on the grid, for n rows.
func laplace(ctx context.Context, c *p2p.Comm, y, x []float64, n, side int) error {
	up, down := c.Rank()-1, c.Rank()+1
	if up < 0 {
		up = p2p.ProcNull
	}
	if down == c.Size() {
		down = p2p.ProcNull
	}
	row := func(i int) []byte { return p2p.Bytes(x[i*side : (i+1)*side]) }
	if _, err := c.Sendrecv(ctx, up, 1, row(1), down, 1, row(n+1)); err != nil {
		return err
	}
	if _, err := c.Sendrecv(ctx, down, 1, row(n), up, 1, row(0)); err != nil {
		return err
	}
	for i := side; i < (n+1)*side; i++ {
		y[i] = 4*x[i] - x[i-side] - x[i+side]
		if i%side > 0 {
			y[i] -= x[i-1]
		}
		if i%side < side-1 {
			y[i] -= x[i+1]
		}
	}
	return nil
}
