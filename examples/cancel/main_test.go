package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

func TestCancel(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		for _, transport := range []string{"rc", "tmsrq"} {
			t.Run(device+"/"+transport, func(t *testing.T) {
				t.Setenv("TAGMATCH_DEVICE", device)
				t.Setenv("TAGMATCH_TRANSPORT", transport)
				code, stdout, stderr := cmdtest.Job(t, 2)
				require.Zero(t, code, stderr)
				// On a busy machine rank 1 may not answer in time: then the Send says more.
				require.Regexp(t, "^Recv: p2p: recv from 1, tag 0x1: context deadline exceeded\n"+
					"Wait: context deadline exceeded\n"+
					"Wait after Cancel: p2p: recv from 1, tag 0x1: operation canceled by Cancel\n"+
					"Send: p2p: send to 1, tag 0x1: context deadline exceeded.*\n"+
					"Recv: the message\n$", stdout)
			})
		}
	}
}

func TestSize(t *testing.T) {
	for _, n := range []int{1, 3} {
		code, stdout, stderr := cmdtest.Job(t, n)
		require.NotZero(t, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "this example takes two ranks: tagmatch run -n 2 -- cancel")
	}
}
