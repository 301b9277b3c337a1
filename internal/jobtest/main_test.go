package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// effort divides numbers of rounds.
const effort = testlevel.Effort

func TestMain(m *testing.M) {
	onNICs := softtest.NICsByEnvironment()
	if how := os.Getenv(floodVar); how != "" {
		if err := flood(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	role := os.Getenv(roleVar)
	if role == "" {
		testlevel.ManyWait()
		if onNICs {
			notOnNICs.SkipTests()
		}
		os.Exit(m.Run())
	}
	if err := playRole(role); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
}

// job is a run of this binary as n ranks.
type job struct {
	n      int
	role   string
	device string
	arg    int
	seed   uint64
	env    []string
	grace  time.Duration
	keep   bool     // the others go on where a rank ends
	within []string // the command that starts a rank, without this binary
}

// result is what a job printed and how it ended.
type result struct {
	code     int
	out, err string
}

// run starts the job and waits for its end.
func (j job) run(t *testing.T) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var out, stderr bytes.Buffer
	env := append(os.Environ(),
		roleVar+"="+j.role, fmt.Sprintf("%s=%d", argVar, j.arg), fmt.Sprintf("%s=%d", seedVar, j.seed), "TAGMATCH_DEVICE="+j.device)
	code, err := launch.Run(ctx, launch.Options{
		N: j.n, Command: append(slices.Clip(j.within), os.Args[0]), Env: append(env, j.env...), Stdout: &out, Stderr: &stderr, Grace: j.grace, KeepGoing: j.keep,
	})
	require.NoError(t, err, "%+v\n%s%s", j, &out, &stderr)
	return result{code, out.String(), stderr.String()}
}

// succeed runs the job, which must succeed.
func (j job) succeed(t *testing.T) {
	t.Helper()
	r := j.run(t)
	require.Zero(t, r.code, "%+v\n%s%s", j, r.out, r.err)
}

// tmsrqEnv selects devices that match, receives of any size.
var tmsrqEnv = []string{"TAGMATCH_TRANSPORT=tmsrq", "TAGMATCH_OFFLOAD_MIN=-1"}

// eachTransport runs a test over both transports on each of the devices, or, below level ci, over
// each transport on one of them.
func eachTransport(t *testing.T, devices []string, f func(t *testing.T, device string, env []string)) {
	for i, device := range devices {
		if testlevel.CI() || i%2 == 0 || len(devices) == 1 {
			t.Run(device+"/rc", func(t *testing.T) { f(t, device, nil) })
		}
		if testlevel.CI() || i%2 == 1 || len(devices) == 1 {
			t.Run(device+"/tmsrq", func(t *testing.T) { f(t, device, tmsrqEnv) })
		}
	}
}

// eachDevice runs a test over shared memory and over TCP; below level ci over one of them, which
// its name decides, and over the other one in builds with -tags invariants.
func eachDevice(t *testing.T, f func(t *testing.T, device string)) {
	odd := crc32.ChecksumIEEE([]byte(t.Name()))&1 != 0
	for i, device := range []string{"shm", "tcp"} {
		if testlevel.CI() || (i == 1) == (odd != invariant.Enabled) {
			t.Run(device, func(t *testing.T) { f(t, device) })
		}
	}
}
