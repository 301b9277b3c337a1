package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/benchkit/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m, main) }

func TestRun(t *testing.T) { benchtest.Results(t, "bw", "-window", "8") }

func TestCheckAndTable(t *testing.T) { benchtest.Table(t, "-window", "8") }

func TestWrongFlags(t *testing.T) { benchtest.WrongFlags(t, "bandwidth") }

// All receives share one buffer: what the device puts there for software to read must not be lost
// to the others' data.
func TestOffload(t *testing.T) {
	stdout, stderr, err := benchtest.Run(t, "-transport", "tmsrq", "-offload-min", "0", "-sizes", "4k,64k,1m", "-iters", "2000", "-json")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, `"offload":`))
}
