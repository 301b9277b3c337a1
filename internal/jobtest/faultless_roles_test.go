package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { programs["faultless"] = faultlessProgram }

func receiveOne(ctx context.Context, c *p2p.Comm, src int, tag p2p.Tag) error {
	_, err := c.Recv(ctx, src, tag, make([]byte, 1<<20))
	return err
}

// faultlessProgram has ranks that wait for each other in all ways, one of which may come late.
func faultlessProgram(context.Context) error {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	g, err := coll.New(ctx, w.Comm())
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(number(seedVar), 0)) // the same on all ranks
	for step := range number(argVar) {
		late, pause := rnd.IntN(w.Size()), time.Duration(rnd.IntN(30))*time.Millisecond
		way := ways[rnd.IntN(len(ways))]
		if late == w.Rank() {
			time.Sleep(pause)
		}
		if err := way(ctx, w.Comm(), g, p2p.Tag(step), rnd.IntN(w.Size()), 1<<rnd.IntN(20)); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return w.Shutdown(ctx)
}

// ways are what all ranks do in a step; of some one of them is the root.
var ways = []func(ctx context.Context, c *p2p.Comm, g *coll.Group, tag p2p.Tag, root, size int) error{
	func(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, _, size int) error {
		next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		_, err := c.Sendrecv(ctx, next, tag, make([]byte, size), prev, tag, make([]byte, size))
		return err
	},
	func(ctx context.Context, c *p2p.Comm, _ *coll.Group, _ p2p.Tag, _, _ int) error {
		return c.Barrier(ctx)
	},
	func(ctx context.Context, c *p2p.Comm, _ *coll.Group, _ p2p.Tag, _, _ int) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return d.Close()
	},
	func(ctx context.Context, _ *p2p.Comm, g *coll.Group, _ p2p.Tag, _, size int) error {
		return coll.AllReduce(ctx, g, coll.Sum[int64](), make([]int64, size/8+1))
	},
	func(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, root, size int) error {
		if c.Rank() != root {
			return c.Send(ctx, root, tag, make([]byte, size))
		}
		for range c.Size() - 1 {
			if _, err := c.Recv(ctx, p2p.AnySource, tag, make([]byte, size)); err != nil {
				return err
			}
		}
		return nil
	},
	floodRoot,
	sendBeside,
	giveUp,
	exchangeAll,
	randomTraffic,
	farm,
	collectives,
}

// sendBeside has all ranks receive in a circle, while another goroutine of each is about to send.
func sendBeside(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, _, size int) error {
	sent := make(chan error, 1)
	go func() {
		time.Sleep(30 * time.Millisecond)
		sent <- c.Send(ctx, (c.Rank()+1)%c.Size(), tag, make([]byte, size))
	}()
	if err := receiveOne(ctx, c, (c.Rank()+c.Size()-1)%c.Size(), tag); err != nil {
		return err
	}
	return <-sent
}

// giveUp has all ranks receive in a circle what nobody sends, until their contexts end.
func giveUp(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, _, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if err := receiveOne(ctx, c, (c.Rank()+c.Size()-1)%c.Size(), tag); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a receive of what nobody sends: %w", err)
	}
	return nil
}

// floodRoot has one rank send more than the root has memory for, while that waits for another one.
func floodRoot(ctx context.Context, c *p2p.Comm, _ *coll.Group, tag p2p.Tag, root, _ int) error {
	const n = 64
	buf := make([]byte, 8<<10)
	switch (c.Rank() - root + c.Size()) % c.Size() {
	case 0:
		if _, err := c.Recv(ctx, (root+2)%c.Size(), tag, nil); err != nil {
			return err
		}
		for range n {
			if _, err := c.Recv(ctx, (root+1)%c.Size(), tag, buf); err != nil {
				return err
			}
		}
	case 1:
		for range n {
			if err := c.Send(ctx, root, tag, buf); err != nil {
				return err
			}
		}
	case 2:
		time.Sleep(20 * time.Millisecond)
		return c.Send(ctx, root, tag, nil)
	}
	return nil
}
