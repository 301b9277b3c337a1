package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

// Every message is compared, in windows smaller and larger than what there is to send.
func TestResults(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		for _, window := range []string{"8", "64"} {
			stdout, stderr, err := cmdtest.Run(t, "-device", device, "-window", window, "-sizes", "0,8,64k,1m", "-iters", "20", "-check", "-json")
			require.NoError(t, err, stderr)
			require.Equal(t, 4, strings.Count(stdout, `{"device":"`+device+`","transport":"tmsrq","size":`), stdout)
			require.Contains(t, stdout, `"size":65536,"iters":20,`)
		}
	}
}

// All receives share one buffer: what the device puts there for software to read must not be lost
// to the others' data.
func TestOffload(t *testing.T) {
	stdout, stderr, err := cmdtest.Run(t, "-transport", "tmsrq", "-offload-min=-1", "-sizes", "4k,64k,1m", "-iters", "2000", "-json")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, `"offloaded":`))
	require.NotContains(t, stdout, `"offloaded":0}`)
}

func TestWrongFlags(t *testing.T) {
	for _, args := range []string{"-device foo", "-window 0", "-iters -3", "-sizes 8q", "extra"} {
		stdout, _, err := cmdtest.Run(t, strings.Fields(args)...)
		require.Error(t, err, args)
		require.Empty(t, stdout, args)
	}
}
