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

func TestRun(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		t.Run(device, func(t *testing.T) {
			stdout, stderr, err := benchtest.Run(t, "-device", device, "-sizes", "0,8,64k,1m", "-iters", "20", "-window", "8", "-json")
			require.NoError(t, err, stderr)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			require.Len(t, lines, 4, stdout)
			for i, size := range []int{0, 8, 64 << 10, 1 << 20} {
				var r benchkit.Result
				require.NoError(t, json.Unmarshal([]byte(lines[i]), &r))
				require.Equal(t, [3]any{"bw", device, "rc"}, [3]any{r.Test, r.Device, r.Transport})
				require.Equal(t, [2]int{size, 20}, [2]int{r.Size, r.Iters})
				require.Positive(t, r.MsgS)
			}
		})
	}
}

func TestCheckAndTable(t *testing.T) {
	stdout, stderr, err := benchtest.Run(t, "-check", "-nopin", "-gomaxprocs", "2", "-sizes", "5,100k", "-iters", "20", "-window", "8")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "# device shm, transport rc")
	require.Contains(t, stdout, "    100k         20 ")
}

func TestWrongFlags(t *testing.T) {
	benchtest.WrongFlags(t, "bandwidth")
}

// All receives share one buffer: what the device puts there for software to read must not be lost to the others' data.
func TestOffload(t *testing.T) {
	stdout, stderr, err := benchtest.Run(t, "-transport", "tmsrq", "-sizes", "4k,64k,1m", "-iters", "2000", "-json")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, `"offload":`))
}
