package doors

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// restOfRanks looks for a rest of a second at ranks that answer like this, and move so much between
// looks.
func restOfRanks(t *testing.T, all bool, moves []uint64, ranks ...inspect.State) Rest {
	t.Helper()
	var names []Name
	for i, s := range ranks {
		s.Version, s.Job, s.Rank, s.Size = inspect.Version, "rests", i, len(ranks)
		n := Name{UID: os.Geteuid(), Job: s.Job, Rank: i, PID: os.Getpid()}
		d, err := Open(n, func(string) []any {
			s.Moved += moves[i]
			return []any{s}
		})
		require.NoError(t, err)
		defer d.Close()
		names = append(names, n)
	}
	return LookForRest(t.Context(), names, time.Second, all)
}

// TestLookForRest: a job rests where nobody moves, somebody is in a call, and all that know since
// when they rest have rested.
func TestLookForRest(t *testing.T) {
	calls := []inspect.Call{{Name: "Comm.Recv"}}
	waits := func(still inspect.Age) inspect.State { return inspect.State{Calls: calls, Still: still} }
	computes := func(still inspect.Age) inspect.State { return inspect.State{Still: still} }
	none := []uint64{0, 0}
	for name, c := range map[string]struct {
		all   bool
		moves []uint64
		a, b  inspect.State
		want  time.Duration
		twice bool
	}{
		"both wait":              {false, none, waits(3000), waits(2000), 2 * time.Second, true},
		"one not for long":       {false, none, waits(3000), waits(10), 10 * time.Millisecond, false},
		"one computes":           {false, none, waits(3000), computes(0), 3 * time.Second, true},
		"one computes, all":      {true, none, waits(3000), computes(0), 0, false},
		"one computes long, all": {true, none, waits(3000), computes(1500), 1500 * time.Millisecond, true},
		"one moves":              {false, []uint64{0, 1}, waits(3000), computes(2000), 0, true},
		"nobody waits":           {false, none, computes(3000), computes(3000), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := restOfRanks(t, c.all, c.moves, c.a, c.b)
			require.Equal(t, c.want, r.For)
			require.Equal(t, c.twice, r.Now != nil)
			require.Len(t, r.Before, 2)
		})
	}
}

// TestMoved: what rests does not move for a socket that another user has named as a door of its
// rank.
func TestMoved(t *testing.T) {
	forged := inspect.State{Rank: 1, Silent: "the door of rank 1 is of user 7"}
	rests := []inspect.State{{Rank: 0, Moved: 3}, forged, {Rank: 1, Moved: 5}}
	require.False(t, Moved(rests, rests))
	require.True(t, Moved([]inspect.State{{Rank: 1, Moved: 6}}, rests))
	require.True(t, Moved(rests, rests[:2]), "rank 1 was not seen")
}
