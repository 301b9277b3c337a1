package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/launch"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

func TestNobodyIsLost(t *testing.T) {
	for _, n := range []int{2, 5} {
		code, stdout, stderr := cmdtest.Job(t, n)
		require.Zero(t, code, stderr)
		require.Equal(t, "sum of the squares: 2870\n", stdout)
	}
}

// TestWorkerIsLost: its task is done by another, or, where there is none, rank 0 says so.
func TestWorkerIsLost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for _, device := range []string{"shm", "tcp"} {
		t.Setenv("TAGMATCH_DEVICE", device)
		code, stdout, stderr := cmdtest.JobOf(t, launch.Options{N: 4, KeepGoing: true}, "-die", "2", "-tasks", "2000")
		require.Zero(t, code, stderr)
		require.Regexp(t, "^rank 2 is lost, and with it task [0-9]+\nsum of the squares: 2668667000\n$", stdout)
		require.Equal(t, "tagmatch: rank 2 was killed by a signal: killed\ntagmatch: rank 2 lost, 3 of 4 ended well\n", stderr)

		code, stdout, stderr = cmdtest.JobOf(t, launch.Options{N: 2, KeepGoing: true}, "-die", "1")
		killed, exited := strings.Index(stderr, "tagmatch: rank 1 was killed"), strings.Index(stderr, "tagmatch: rank 0 exited with code 1")
		require.True(t, killed >= 0 && exited >= 0, stderr)
		want := 1 // of the one that the launcher saw end first
		if killed < exited {
			want = 128 + 9
		}
		require.Equal(t, want, code, stderr)
		require.Equal(t, "rank 1 is lost, and with it task 3\n", stdout)
		require.Contains(t, stderr, "all workers are lost")
		require.Contains(t, stderr, "tagmatch: rank 1 lost, rank 0 failed, 0 of 2 ended well\n")
	}
}

func TestSize(t *testing.T) {
	code, _, stderr := cmdtest.Job(t, 1)
	require.NotZero(t, code)
	require.Contains(t, stderr, "this example takes two ranks or more")
}
