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
// which compares its weights. All that end it have the same result.
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
			results := strings.Split(strings.TrimSpace(stdout), "\n")
			require.GreaterOrEqual(t, len(results), 5-strings.Count(stderr, "exited with code 9"), "%s%s", stdout, stderr)
			for _, line := range results {
				require.Contains(t, line, " of 5 ranks, 60 steps, weights [0.")
				require.Equal(t, results[0], line)
			}
		}
	}
}
