package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

func TestRing(t *testing.T) {
	for n, want := range map[int]string{2: "0 1", 5: "0 1 2 3 4"} {
		code, stdout, stderr := cmdtest.Job(t, n)
		require.Zero(t, code, stderr)
		require.Equal(t, "the token was at ranks "+want+"\n", stdout)
	}
}

func TestAlone(t *testing.T) {
	stdout, stderr, err := cmdtest.Run(t)
	require.ErrorContains(t, err, "exit status 1")
	require.Empty(t, stdout)
	require.Contains(t, stderr, "a ring takes two ranks or more: tagmatch run -n 4 -- ring")
}
