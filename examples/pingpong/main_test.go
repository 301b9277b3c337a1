package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/benchkit"
	"github.com/tagmatch/tagmatch/internal/benchkit/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m, main) }

func TestRun(t *testing.T) { benchtest.Results(t, "lat") }

// The device matches also what is small, a list of one holds it, and without a list software does
// it.
func TestOffload(t *testing.T) {
	for _, tags := range []string{"-1", "1", "0"} {
		stdout, stderr, err := benchtest.Run(t, "-transport", "tmsrq", "-offload-min", "0", "-max-tags", tags,
			"-sizes", "8,4k,64k", "-iters", "100", "-check", "-json")
		require.NoError(t, err, stderr)
		for line := range strings.Lines(stdout) {
			var r benchkit.Result
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			require.Equal(t, "tmsrq", r.Transport)
			require.NotNil(t, r.Offload, line)
			require.Equal(t, tags != "0", r.Offload.Offloaded > 0, line)
		}
	}
	stdout, stderr, err := benchtest.Run(t, "-transport", "tmsrq", "-sizes", "8", "-iters", "200", "-json")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, `"offloaded":0,`)
}

func TestCheckAndTable(t *testing.T) { benchtest.Table(t) }

func TestWrongFlags(t *testing.T) { benchtest.WrongFlags(t, "pingpong") }

func TestEnvironmentChooses(t *testing.T) {
	t.Setenv("TAGMATCH_DEVICE", "tcp")
	stdout, stderr, err := benchtest.Run(t, "-sizes", "8", "-iters", "5")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "# device tcp,")
}
