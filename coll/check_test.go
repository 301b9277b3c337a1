package coll_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestCheckedLengths: where calls are compared those that take any lengths are the same.
func TestCheckedLengths(t *testing.T) {
	t.Setenv(coll.Environment, "check")
	each(t, 3, func(g *coll.Group, _ *p2p.World) {
		mine := make([]int32, g.Rank())
		all := [][]int32{mine, mine, mine}
		_, err := coll.GatherV(background, g, 1, mine)
		assert.NoError(t, err)
		_, err = coll.ScatterV(background, g, 1, all)
		assert.NoError(t, err)
		_, err = coll.AllGatherV(background, g, mine)
		assert.NoError(t, err)
		_, err = coll.AllToAllV(background, g, all)
		assert.NoError(t, err)
	})
}
