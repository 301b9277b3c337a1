package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/progress"
)

// TestKeys: keys name what the program gave.
func TestKeys(t *testing.T) {
	for want, c := range map[inspect.Key]struct{ tag, mask uint64 }{
		{Comm: inspect.CommRaw, Tag: 9}:             {9, uint64(MaskExact)},
		{Comm: inspect.CommRaw, Tag: 8, Mask: 0xff}: {8, 0xff | namespace},
		{Comm: inspect.CommRaw, Any: true}:          {0, namespace},
		{Comm: inspect.CommWorld, Tag: 7}:           {contexts.Base(contexts.World) | 3<<sourceShift | 7, uint64(MaskExact)},
		{Comm: inspect.CommWorld, Tag: 6}:           {contexts.Base(contexts.World) | 6, uint64(MaskExact) &^ sourceMask},
		{Comm: "Comm 5", Any: true}:                 {contexts.Base(5), uint64(MaskExact) &^ tagMask},
		{Comm: inspect.CommLibrary, Tag: 2}:         {contexts.Base(contexts.Library) | 2, uint64(MaskExact)},
	} {
		require.Equal(t, want, inspect.KeyOf(c.tag, c.mask))
	}
}

// TestStagesHaveWords: no stage or kind of an operation is shown without a word.
func TestStagesHaveWords(t *testing.T) {
	for stage := progress.StagePosted; stage <= progress.StageWithdrawn; stage++ {
		require.NotEmpty(t, stageWords[stage], stage)
	}
	for kind := range progress.UnfinishedKinds {
		var s inspect.State
		addGroup(&s, &progress.Group{Unfinished: progress.Unfinished{Kind: kind}, N: 3})
		n := 0
		for _, r := range s.Receives {
			require.NotEmpty(t, r.Kind)
			n += r.N
		}
		for _, m := range s.Messages {
			n += m.N
		}
		for _, o := range s.Sends {
			n += o.N
		}
		require.Equal(t, 3, n)
	}
}

// TestHearsOfNoStrangers: what a rank says of ranks that there are not has none of the job left
// out.
func TestHearsOfNoStrangers(t *testing.T) {
	h := hearing{size: 3, heard: map[int]bool{}, settled: map[int]bool{}, halted: map[int]inspect.Part{}, emit: func(any) error { return nil }}
	var r reply
	for _, rank := range []int{-1, 3, 4, 2} {
		r.Behind = append(r.Behind, inspect.Part{Rank: rank, Why: doors.Stopped})
	}
	h.take(bootstrap.Reply{Rank: 1, Body: pack(&r)})
	require.Equal(t, map[int]bool{1: true, 2: true}, h.settled)
	require.Len(t, h.halted, 1)
}
