package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

// TestDdp kills no rank, one or two at some moment of the training: the others end it as one job,
// which compares its weights.
func TestDdp(t *testing.T) {
	runs := 1
	if testlevel.CI() {
		runs = 10
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	for range runs {
		for _, die := range []string{"", "1", "0,3"} {
			opt := launch.Options{N: 5, KeepGoing: true}
			code, stdout, stderr := cmdtest.Program(exe).Job(t, opt, "-steps", "60", "-die", die)
			require.Zero(t, code, stderr)
			require.Equal(t, 1, strings.Count(stdout, " of 5 ranks, 60 steps, weights [0."), "%s%s", stdout, stderr)
		}
	}
}
