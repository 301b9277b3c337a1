package benchkit

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags tell the two directions apart.
const (
	ping p2p.Tag = 1 + iota
	pong
)

// PingPong measures half round trips of one size.
func PingPong(s *Session, size, iters int) (Result, error) {
	g := game{w: s.World, peer: s.Peer, first: s.First, out: make([]byte, size), in: make([]byte, size)}
	if err := g.checked(); err != nil { // payloads are verified before timing
		return Result{}, err
	}
	step := g.step
	if s.Check {
		step = g.checked
	}
	return s.latency("lat", size, iters, step)
}

// game is one rank's side.
type game struct {
	w       *p2p.World
	peer    int
	first   bool
	out, in []byte
	round   int
}

// step is one round trip: the first rank serves, the other returns.
func (g *game) step() error {
	ctx := context.Background()
	if g.first {
		if err := g.w.Send(ctx, g.peer, ping, g.out); err != nil {
			return err
		}
		_, err := g.w.Recv(ctx, pong, p2p.Exact, g.in)
		return err
	}
	if _, err := g.w.Recv(ctx, ping, p2p.Exact, g.in); err != nil {
		return err
	}
	return g.w.Send(ctx, g.peer, pong, g.out)
}

// checked is a step with payloads that are new each time: the second rank returns what it got, the first compares.
func (g *game) checked() error {
	ctx := context.Background()
	g.round++
	fill(g.out, g.round)
	if !g.first {
		st, err := g.w.Recv(ctx, ping, p2p.Exact, g.in)
		if err != nil {
			return err
		}
		if err := verify(g.in, st, g.round); err != nil {
			return err
		}
		return g.w.Send(ctx, g.peer, pong, g.in)
	}
	clear(g.in)
	if err := g.w.Send(ctx, g.peer, ping, g.out); err != nil {
		return err
	}
	st, err := g.w.Recv(ctx, pong, p2p.Exact, g.in)
	if err != nil {
		return err
	}
	if int(st.Len) != len(g.out) || !bytes.Equal(g.in, g.out) {
		return fmt.Errorf("round %d: what came back from rank %d is not what was sent", g.round, st.Source)
	}
	return nil
}
