package consumer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cmdtest"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// copied builds an example in a module of its own, as this test was built: examples can be copied.
func copied(t *testing.T, name string) cmdtest.Program {
	t.Helper()
	testlevel.SkipIfQuick(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "examples", name, "*.go"))
	require.NoError(t, err)
	dir := t.TempDir()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644))
		}
	}
	makeModule(t, root, dir)
	build := []string{"build", "-o", name}
	if testlevel.Race {
		build = append(build, "-race")
	}
	if invariant.Enabled {
		build = append(build, "-tags", "invariants")
	}
	run(t, dir, "go", append(build, ".")...)
	return cmdtest.Program(filepath.Join(dir, name))
}

// eachDevice runs f over shared memory and over TCP.
func eachDevice(t *testing.T, f func(t *testing.T, device string)) {
	for _, device := range []string{"shm", "tcp"} {
		t.Run(device, func(t *testing.T) {
			t.Setenv("TAGMATCH_DEVICE", device)
			f(t, device)
		})
	}
}

// refuses has a program end with an error that matches want, before it has printed anything.
func refuses(t *testing.T, p cmdtest.Program, args, want string) {
	t.Helper()
	stdout, stderr, err := p.Run(strings.Fields(args)...)
	require.Error(t, err, args)
	require.Empty(t, stdout, args)
	require.Contains(t, stderr, want)
}

// ranks is a job of n ranks that has succeeded.
func ranks(t *testing.T, p cmdtest.Program, n int, args ...string) (stdout string) {
	t.Helper()
	code, stdout, stderr := p.Job(t, launch.Options{N: n}, args...)
	require.Zero(t, code, stderr)
	return stdout
}

func TestAllReduce(t *testing.T) {
	stdout, stderr, err := copied(t, "allreduce").Run("-n", "2", "-iters", "2", "-sizes", "4")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "2 ranks, float32")
}

func TestRing(t *testing.T) {
	ring := copied(t, "ring")
	for n, want := range map[int]string{2: "0 1", 5: "0 1 2 3 4"} {
		require.Equal(t, "the token was at ranks "+want+"\n", ranks(t, ring, n))
	}
	refuses(t, ring, "", "a ring takes two ranks or more: tagmatch run -n 4 -- ring")
}

func TestCancel(t *testing.T) {
	cancel := copied(t, "cancel")
	eachDevice(t, func(t *testing.T, _ string) {
		for _, transport := range []string{"rc", "tmsrq"} {
			t.Setenv("TAGMATCH_TRANSPORT", transport)
			// On a busy machine rank 1 may not answer in time: then the Send says more.
			require.Regexp(t, "^Recv: p2p: recv from 1, tag 0x1: context deadline exceeded\n"+
				"Wait: context deadline exceeded\n"+
				"Wait after Cancel: p2p: recv from 1, tag 0x1: operation canceled by Cancel\n"+
				"Send: p2p: send to 1, tag 0x1: context deadline exceeded.*\n"+
				"Recv: the message\n$", ranks(t, cancel, 2))
		}
	})
	for _, n := range []int{1, 3} {
		code, stdout, stderr := cancel.Job(t, launch.Options{N: n})
		require.NotZero(t, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "this example takes two ranks: tagmatch run -n 2 -- cancel")
	}
}

// TestFarm loses a worker: its task is done by another, or, where there is none, rank 0 says so.
func TestFarm(t *testing.T) {
	farm := copied(t, "farm")
	for _, n := range []int{2, 5} {
		require.Equal(t, "sum of the squares: 2870\n", ranks(t, farm, n))
	}
	eachDevice(t, func(t *testing.T, _ string) {
		code, stdout, stderr := farm.Job(t, launch.Options{N: 4, KeepGoing: true}, "-die", "2", "-tasks", "2000")
		require.Zero(t, code, stderr)
		require.Regexp(t, "^rank 2 is lost, and with it task [0-9]+\nsum of the squares: 2668667000\n$", stdout)
		require.Equal(t, "tagmatch: rank 2 was killed by a signal: killed\ntagmatch: rank 2 lost, 3 of 4 ended well\n", stderr)

		code, stdout, stderr = farm.Job(t, launch.Options{N: 2, KeepGoing: true}, "-die", "1")
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
	})
	code, _, stderr := farm.Job(t, launch.Options{N: 1})
	require.NotZero(t, code)
	require.Contains(t, stderr, "this example takes two ranks or more")
}

func TestBandwidth(t *testing.T) {
	bandwidth := copied(t, "bandwidth")
	// Every message is compared, in windows smaller and larger than what there is to send.
	eachDevice(t, func(t *testing.T, device string) {
		for _, window := range []string{"8", "64"} {
			stdout, stderr, err := bandwidth.Run("-device", device, "-window", window, "-sizes", "0,8,64k,1m", "-iters", "20", "-check", "-json")
			require.NoError(t, err, stderr)
			require.Equal(t, 4, strings.Count(stdout, `{"device":"`+device+`","transport":"tmsrq","size":`), stdout)
			require.Contains(t, stdout, `"size":65536,"iters":20,`)
		}
	})
	// All receives share one buffer: what the device puts there for software to read must not be
	// lost to the others' data.
	stdout, stderr, err := bandwidth.Run("-transport", "tmsrq", "-offload-min=-1", "-sizes", "4k,64k,1m", "-iters", "2000", "-json")
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, `"offloaded":`))
	require.NotContains(t, stdout, `"offloaded":0}`)
	for _, args := range []string{"-device foo", "-window 0", "-iters -3", "-sizes 8q", "extra"} {
		refuses(t, bandwidth, args, "")
	}
}

// results runs pingpong with -json and returns its lines.
func results(t *testing.T, pingpong cmdtest.Program, args ...string) (list []map[string]any) {
	t.Helper()
	stdout, stderr, err := pingpong.Run(append(args, "-json", "-check")...)
	require.NoError(t, err, stderr)
	for line := range strings.Lines(stdout) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		list = append(list, r)
	}
	return list
}

func TestPingpong(t *testing.T) {
	pingpong := copied(t, "pingpong")
	eachDevice(t, func(t *testing.T, device string) {
		list := results(t, pingpong, "-sizes", "0,8,64k,1m", "-iters", "20") // the environment chooses
		require.Len(t, list, 4)
		for i, size := range []float64{0, 8, 64 << 10, 1 << 20} {
			r := list[i]
			require.Equal(t, [4]any{device, "tmsrq", size, 20.0}, [4]any{r["device"], r["transport"], r["size"], r["iters"]})
			require.Positive(t, r["avg_us"])
		}
	})
	require.Equal(t, "tcp", results(t, pingpong, "-device", "tcp", "-sizes", "8", "-iters", "5")[0]["device"])
	// The device matches also what is small, a list of one holds it, and without a list software
	// does it.
	for _, tags := range []string{"0", "1", "-1"} {
		list := results(t, pingpong, "-transport", "tmsrq", "-offload-min=-1", "-max-tags="+tags, "-sizes", "8,4k,64k", "-iters", "100")
		require.Len(t, list, 3)
		require.Equal(t, tags != "-1", list[2]["offloaded"].(float64) > 0)
	}
	require.Zero(t, results(t, pingpong, "-transport", "tmsrq", "-sizes", "8", "-iters", "200")[0]["offloaded"])
	// Under a launcher with more ranks than two the others wait.
	require.Contains(t, ranks(t, pingpong, 4, "-sizes", "5", "-iters", "20"), " 5 bytes       20 round trips")
	for args, want := range map[string]string{
		"-device foo": `Config.Device is "foo": this build has auto, shm, tcp`,
		"-sizes huge": `-sizes: "huge" is no size from 0 to 1024m`,
		"-sizes 2k2":  `-sizes: "2k2" is no size`,
		"-iters -3":   "-iters must not be below 0",
		"extra":       `arguments that are no flags are not known: ["extra"]`,
	} {
		refuses(t, pingpong, args, want)
	}
}
