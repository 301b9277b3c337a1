package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

// TestSamplesort: the program checks its result itself.
func TestSamplesort(t *testing.T) {
	for _, count := range []string{"1", "50000"} {
		stdout, stderr, err := cmdtest.Run(t, "-n", "3", "-count", count)
		require.NoError(t, err, stderr)
		require.Regexp(t, `^3 ranks sorted (3|150000) numbers in `, stdout)
	}
}
