package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

// TestCg: with any number of ranks it converges in as many steps.
func TestCg(t *testing.T) {
	for _, n := range []string{"1", "3"} {
		stdout, stderr, err := cmdtest.Run(t, "-n", n, "-grid", "40")
		require.NoError(t, err, stderr)
		require.Regexp(t, `^\d ranks, 40 x 40 points: residual \d\.\de-0[89] after 74 steps\n$`, stdout)
	}
	_, stderr, err := cmdtest.Run(t, "-n", "3", "-grid", "2")
	require.Error(t, err)
	require.Contains(t, stderr, "-grid 2: each of 3 ranks takes a row at least")
}
