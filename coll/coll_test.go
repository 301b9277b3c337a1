package coll_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

var background = context.Background()

// each runs f on n ranks, with a Group of all.
func each(t *testing.T, n int, f func(g *coll.Group, w *p2p.World)) {
	p2ptest.Run(t, n, func(w *p2p.World) {
		g, err := coll.New(background, w.Comm())
		require.NoError(t, err)
		f(g, w)
		require.NoError(t, g.Close())
	})
}

// TestArguments: each mistake is named, on a Group of one rank.
func TestArguments(t *testing.T) {
	type pointer struct{ P [2]*int }
	for want, call := range map[string]func(g *coll.Group) error{
		"coll: bcast: invalid argument: root 1 is out of range: members go from 0 to 0": func(g *coll.Group) error {
			return coll.Bcast(background, g, 1, []int32{1})
		},
		"coll: bcast: invalid argument: elements of type coll_test.pointer have pointers, which mean nothing on other ranks": func(g *coll.Group) error {
			return coll.Bcast(background, g, 0, []pointer{{}})
		},
		"coll: bcast: invalid argument: elements of type struct {} have no bytes": func(g *coll.Group) error {
			return coll.Bcast(background, g, 0, []struct{}{{}})
		},
		"coll: allreduce: invalid argument: the Op is a zero value, or a Func of nil": func(g *coll.Group) error {
			return coll.AllReduce(background, g, coll.Op[int8]{}, []int8{1})
		},
		"coll: gather: invalid argument: all has 3 elements and mine 2: for 1 members it must have 2": func(g *coll.Group) error {
			return coll.Gather(background, g, 0, make([]byte, 3), make([]byte, 2))
		},
		"coll: alltoall: invalid argument: recv has 3 elements and send 2: both must have the same number, a multiple of the 1 members": func(g *coll.Group) error {
			return coll.AllToAll(background, g, make([]byte, 3), make([]byte, 2))
		},
		"coll: alltoallv: invalid argument: there are 2 pieces for 1 members": func(g *coll.Group) error {
			_, err := coll.AllToAllV(background, g, make([][]byte, 2))
			return err
		},
		"coll: barrier: invalid argument: the context is nil: use context.Background where nothing should end the call": func(g *coll.Group) error {
			var none context.Context
			return coll.Barrier(none, g)
		},
	} {
		each(t, 1, func(g *coll.Group, _ *p2p.World) {
			err := call(g)
			assert.ErrorIs(t, err, p2p.ErrInvalid)
			assert.EqualError(t, err, want)
		})
	}
}

// TestLengths: a member whose vector is shorter is found out by who receives from it, and all calls
// end.
func TestLengths(t *testing.T) {
	want := "lengths must be equal on all ranks"
	if invariant.Enabled {
		want = "the members make different calls"
	}
	each(t, 2, func(g *coll.Group, _ *p2p.World) {
		err := coll.AllReduce(background, g, coll.Sum[int32](), make([]int32, 2+g.Rank()))
		if !errors.Is(err, p2p.ErrRevoked) {
			assert.ErrorIs(t, err, p2p.ErrInvalid)
			assert.ErrorContains(t, err, want)
		}
	})
}

// TestTold: a wrong argument of one member ends the calls of the others.
func TestTold(t *testing.T) {
	each(t, 3, func(g *coll.Group, w *p2p.World) {
		ctx, end := context.WithTimeout(background, testlevel.Patience(time.Minute))
		defer end()
		assert.NoError(t, w.Comm().Barrier(ctx)) // all have a Group
		if g.Rank() == 1 {
			assert.ErrorIs(t, coll.Bcast(ctx, g, 9, make([]int32, 2)), p2p.ErrInvalid)
			return
		}
		err := coll.Barrier(ctx, g)
		assert.ErrorIs(t, err, p2p.ErrRevoked)
		assert.ErrorContains(t, err, "revoked by rank 1 of the World: bcast: invalid argument: root 9 is out of range: members go from 0 to 2")
	})
}
