package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// unmet plays steps in a world whose ranks are not connected before.
func unmet(t *testing.T, steps ...Step) Coverage {
	t.Helper()
	p := plain()
	p.Params.Unmet, p.Steps = true, steps
	out, err := Run(p, nil)
	require.NoError(t, err)
	return out.Coverage
}

// TestUnmet plays how two ranks connect, or do not.
func TestUnmet(t *testing.T) {
	lose := Step{Do: OpLose, Rank: 1, Peer: 0}
	answer := Step{Do: OpSend, Rank: 1, Peer: 0, Size: 8}
	one := unmet(t, message()...)
	require.EqualValues(t, 1, one[MetByOne])
	require.EqualValues(t, 1, one[Messages])
	require.EqualValues(t, 1, unmet(t, append(message(), answer)...)[MetByBoth])

	gone := unmet(t, lose, sends(8))
	require.EqualValues(t, 1, gone[LostBeforeMet])
	require.EqualValues(t, 1, gone[Refused])
	told := unmet(t, append(message(), polls(0), polls(1), polls(0), polls(1), lose)...)
	require.EqualValues(t, 1, told[EndTold])
	require.EqualValues(t, 1, told[Messages])
	// The message was told when the line breaks, or not.
	for polls := range 3 {
		cut := unmet(t, sends(8), Step{Do: OpPoll, Rank: 0, N: 1 + polls}, breaks())
		require.NotZero(t, cut[EndedMidway])
		require.Zero(t, cut[Messages])
	}
	// There is nothing to break.
	require.EqualValues(t, 1, unmet(t, append([]Step{breaks()}, message()...)...)[Messages])
}
