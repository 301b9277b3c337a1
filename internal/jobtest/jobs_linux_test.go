package jobtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestSchedule plays random sends, receives and cancels among real processes and compares what each
// saw with the model: a few, as package sim plays them by the thousand.
func TestSchedule(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		for _, n := range []int{2, 3, 5, 8} {
			if testlevel.Quick() && n != 3 {
				continue
			}
			seed := uint64(time.Now().UnixNano())
			t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
				t.Logf("seed %d", seed)
				job{n: n, role: "schedule", device: device, arg: 60 / n, seed: seed}.succeed(t)
			})
			t.Run(fmt.Sprintf("%d ranks tmsrq", n), func(t *testing.T) {
				t.Logf("seed %d", seed)
				for _, tags := range []string{"TAGMATCH_MAX_TAGS=0", "TAGMATCH_MAX_TAGS=2"} {
					job{n: n, role: "schedule", device: device, arg: 30 / n, seed: seed, env: append([]string{tags}, tmsrqEnv...)}.succeed(t)
				}
			})
		}
	})
}

// TestStream sends 10,000 messages of 0 B to 8 MiB per pair among 4 processes.
func TestStream(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 4, role: "stream", device: device, arg: 10000 / fewer()}.succeed(t)
	})
}

// TestOffloaded runs other roles with devices that match.
func TestOffloaded(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "stream", device: device, arg: 2000 / fewer(), env: tmsrqEnv}.succeed(t)
		job{n: 6, role: "alltoall", device: device, arg: 10, env: tmsrqEnv}.succeed(t)
		job{n: 3, role: "orderly", device: device, env: tmsrqEnv}.succeed(t)
	})
}

// TestAllToAll exchanges blocks among 16 processes.
func TestAllToAll(t *testing.T) {
	job{n: 16, role: "alltoall", device: "shm", arg: 10}.succeed(t)
	job{n: 6, role: "alltoall", device: "tcp", arg: 10}.succeed(t)
}

// TestOneCore lets two ranks share a processor: each must yield it as soon as it has nothing to do.
func TestOneCore(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 2, role: "pingpong", device: device, arg: 20000 / effort, env: []string{coresVar + "=1"}}.succeed(t)
	})
}

// TestMoreRanksThanProcessors lets 8 ranks share two processors: a waiting rank must not keep one
// from a rank that it waits for.
func TestMoreRanksThanProcessors(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"rc": nil, "tmsrq": tmsrqEnv, "one P": {"GOMAXPROCS=1"}, "manual": {"TAGMATCH_PROGRESS=manual"}} {
		if testlevel.Quick() && name == "rc" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			eachDevice(t, func(t *testing.T, device string) {
				job{n: 8, role: "star", device: device, arg: 480 / effort, env: append([]string{coresVar + "=2"}, env...)}.succeed(t)
			})
		})
	}
}

// TestKilled kills a rank by SIGKILL in the middle of operations of all kinds.
func TestKilled(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		t.Run(transport, func(t *testing.T) { testKilled(t, transport) })
	}
}

func testKilled(t *testing.T, transport string) {
	eachDevice(t, func(t *testing.T, device string) {
		tmp := t.TempDir()
		env := []string{"TMPDIR=" + tmp}
		if transport == "tmsrq" {
			env = append(env, tmsrqEnv...)
		}
		r := job{n: 4, role: "killed", device: device, grace: time.Minute, env: env}.run(t)
		require.Equal(t, 128+9, r.code, "%s%s", r.out, r.err)
		for _, rank := range []int{0, 2, 3} {
			require.Contains(t, r.out, fmt.Sprintf("[%d] survived", rank), "%s%s", r.out, r.err)
		}
		for _, name := range names(t, "/dev/shm") { // others have files there, too
			require.NotContains(t, name, "tagmatch")
		}
		require.Empty(t, names(t, tmp))
	})
}

// TestStopped sends large messages with a deadline to a rank that a signal has stopped.
func TestStopped(t *testing.T) {
	for _, transport := range []string{"rc", "tmsrq"} {
		t.Run(transport, func(t *testing.T) {
			var env []string
			if transport == "tmsrq" {
				env = tmsrqEnv
			}
			eachDevice(t, func(t *testing.T, device string) {
				r := job{n: 2, role: "stopped", device: device, env: env}.run(t)
				require.Zero(t, r.code, "%s%s", r.out, r.err)
			})
		})
	}
}

// TestStrangerLost loses a rank, killed or closed, that had no connections.
func TestStrangerLost(t *testing.T) {
	t.Parallel()
	eachDevice(t, func(t *testing.T, device string) {
		for arg, code := range []int{128 + 9, 0} {
			r := job{n: 4, role: "stranger", device: device, arg: arg, grace: time.Minute}.run(t)
			require.Equal(t, code, r.code, "%s%s", r.out, r.err)
			for _, rank := range []int{0, 2, 3} {
				require.Contains(t, r.out, fmt.Sprintf("[%d] survived", rank), "%s%s", r.out, r.err)
			}
		}
	})
}

// TestHasty loses a rank right after its Init, rank 0 in particular, which serves the rendezvous:
// the Init of the others must not fail because of that.
func TestHasty(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		for i := range 12 {
			r := job{n: 5, role: "hasty", device: device, arg: i % 2, grace: time.Minute}.run(t)
			require.Equal(t, 128+9, r.code, "%s%s", r.out, r.err)
			require.Equal(t, 4, strings.Count(r.out, "survived"), "%s%s", r.out, r.err)
		}
	})
}

// TestOrderly checks that a message outlives its sender's Shutdown.
func TestOrderly(t *testing.T) {
	eachDevice(t, func(t *testing.T, device string) {
		job{n: 3, role: "orderly", device: device}.succeed(t)
	})
}

// TestBadJobs starts ranks with incompatible settings: each must end with an error that names the
// difference.
func TestBadJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, odd, want string }{
		{"wrong secret", "TAGMATCH_SECRET=" + strings.Repeat("ab", 32), "secret"},
		{"no rank", "RANK=", "RANK"},
		{"rank twice", "RANK=0", "rank"},
		{"other size", "WORLD_SIZE=3", "WORLD_SIZE"},
		{"no port", "MASTER_PORT=", "MASTER_PORT"},
		{"other device", "TAGMATCH_DEVICE=tcp", "device"},
		{"unknown device", "TAGMATCH_DEVICE=shn", "shn"},
		{"other eager limit", "TAGMATCH_EAGER_LIMIT=100", "eager"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			r := job{n: 2, role: "pingpong", device: "shm", arg: 2, env: []string{oddVar + "=" + c.odd, "TAGMATCH_JOIN_TIMEOUT=5s"}}.run(t)
			require.NotZero(t, r.code, "%s%s", r.out, r.err)
			require.Contains(t, strings.ToLower(r.err), strings.ToLower(c.want))
			t.Logf("%v: %s", time.Since(start).Round(time.Millisecond), r.err)
		})
	}
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
