package benchtest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/benchkit"
)

// Results runs the command on each device and checks the results of its test, one line a size.
func Results(t *testing.T, test string, more ...string) {
	for _, device := range []string{"shm", "tcp"} {
		t.Run(device, func(t *testing.T) {
			args := append([]string{"-device", device, "-sizes", "0,8,64k,1m", "-iters", "20", "-json"}, more...)
			stdout, stderr, err := Run(t, args...)
			require.NoError(t, err, stderr)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			require.Len(t, lines, 4, stdout)
			for i, size := range []int{0, 8, 64 << 10, 1 << 20} {
				var r benchkit.Result
				require.NoError(t, json.Unmarshal([]byte(lines[i]), &r))
				require.Equal(t, [3]any{test, device, "tmsrq"}, [3]any{r.Test, r.Device, r.Transport})
				require.Equal(t, [2]int{size, 20}, [2]int{r.Size, r.Iters})
				require.Positive(t, r.MsgS)
			}
		})
	}
}

// Table runs the command with every payload verified, and checks its table.
func Table(t *testing.T, more ...string) {
	args := append([]string{"-check", "-nopin", "-gomaxprocs", "2", "-sizes", "5,100k", "-iters", "20"}, more...)
	stdout, stderr, err := Run(t, args...)
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "# device shm, transport tmsrq")
	require.Contains(t, stdout, "    100k         20 ")
}

// WrongFlags gives the command flags that it must refuse: at once, in one line that names the
// fault.
func WrongFlags(t *testing.T, name string) {
	for args, want := range map[string]string{
		"-device foo":      `-device is "foo": this build has auto, shm, tcp`,
		"-transport foo":   `-transport is "foo": this build has auto, rc, tmsrq`,
		"-sizes huge":      `invalid value "huge" for flag -sizes: "huge" is not a size: give 0 to 1073741824 bytes, for example 8,1k,4m`,
		"-iters -3":        "-iters is -3: give 1 or more, or 0 for as many as the size calls for",
		"-gomaxprocs -1":   "-gomaxprocs is -1: give 1 to 1024, or 0 to leave it",
		"-max-tags 100000": "-max-tags is 100000: give 0 to 65536, or -1 for the default",
		"extra":            `unexpected argument "extra"`,
		"-no-such-flag":    "flag provided but not defined: -no-such-flag",
	} {
		stdout, stderr, err := Run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, "exit status 2", args)
		require.Empty(t, stdout, args)
		require.Equal(t, name+": "+want+" (-h lists the flags)\n", stderr, args)
	}
	_, stderr, err := Run(t, "-h")
	require.NoError(t, err)
	require.Contains(t, stderr, "-device name")
}
