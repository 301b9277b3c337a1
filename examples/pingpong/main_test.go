package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
)

func TestMain(m *testing.M) { cmdtest.Main(m, main) }

// results runs the program with -json and returns its lines.
func results(t *testing.T, args ...string) (list []map[string]any) {
	stdout, stderr, err := cmdtest.Run(t, append(args, "-json", "-check")...)
	require.NoError(t, err, stderr)
	for line := range strings.Lines(stdout) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		list = append(list, r)
	}
	return list
}

func TestResults(t *testing.T) {
	for _, device := range []string{"shm", "tcp"} {
		list := results(t, "-device", device, "-sizes", "0,8,64k,1m", "-iters", "20")
		require.Len(t, list, 4)
		for i, size := range []float64{0, 8, 64 << 10, 1 << 20} {
			r := list[i]
			require.Equal(t, [4]any{device, "tmsrq", size, 20.0}, [4]any{r["device"], r["transport"], r["size"], r["iters"]})
			require.Positive(t, r["avg_us"])
		}
	}
}

// The device matches also what is small, a list of one holds it, and without a list software does
// it.
func TestOffload(t *testing.T) {
	for _, tags := range []string{"0", "1", "-1"} {
		list := results(t, "-transport", "tmsrq", "-offload-min=-1", "-max-tags="+tags, "-sizes", "8,4k,64k", "-iters", "100")
		require.Len(t, list, 3)
		require.Equal(t, tags != "-1", list[2]["offloaded"].(float64) > 0)
	}
	require.Zero(t, results(t, "-transport", "tmsrq", "-sizes", "8", "-iters", "200")[0]["offloaded"])
}

// Under a launcher with more ranks than two the others wait.
func TestJob(t *testing.T) {
	code, stdout, stderr := cmdtest.Job(t, 4, "-sizes", "5", "-iters", "20")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, " 5 bytes       20 round trips")
}

func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-device foo": `Config.Device is "foo": this build has auto, shm, tcp`,
		"-sizes huge": `-sizes: "huge" is no size from 0 to 1024m`,
		"-sizes 2k2":  `-sizes: "2k2" is no size`,
		"-iters -3":   "-iters must not be below 0",
		"extra":       `arguments that are no flags are not known: ["extra"]`,
	} {
		stdout, stderr, err := cmdtest.Run(t, strings.Fields(args)...)
		require.Error(t, err, args)
		require.Empty(t, stdout, args)
		require.Contains(t, stderr, want)
	}
}

func TestEnvironmentChooses(t *testing.T) {
	t.Setenv("TAGMATCH_DEVICE", "tcp")
	require.Equal(t, "tcp", results(t, "-sizes", "8", "-iters", "5")[0]["device"])
}
