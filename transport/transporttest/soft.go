package transporttest

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Rough is a loop wire that delays, cuts and refuses at random.
var Rough = softtest.FabricOptions{MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 512, Queue: 4}

// Clocked is a loop wire with a virtual clock.
var Clocked = softtest.FabricOptions{Step: time.Microsecond}

// LoopDevices is a Harness.Devices of software devices on a new fabric.
func LoopDevices(fo softtest.FabricOptions, config soft.Config) func(*testing.T, int, Options) *Job {
	return func(t *testing.T, n int, o Options) *Job {
		fo.Seed = o.Seed
		f := softtest.NewFabric(fo)
		devs := make([]*soft.Device, n)
		job := &Job{Kill: func(rank int) { softtest.Kill(f, devs[rank]) }}
		for i := range n {
			c := config
			c.Fabric, c.Rank, c.MaxInline, c.TM.MaxOps = f, i, o.MaxInline, cmp.Or(o.MaxOps, c.TM.MaxOps)
			d, err := soft.Open(c)
			require.NoError(t, err)
			t.Cleanup(func() {
				require.Zero(t, softtest.Early(d), "queue pairs of rank %d got packets before they were in RTR", i)
			})
			devs[i] = d
			job.Devices = append(job.Devices, d)
		}
		return job
	}
}

// WireDevices is a Harness.Devices of software devices in one process, connected by a wire for
// several processes.
func WireDevices(wire string, config soft.Config) func(*testing.T, int, Options) *Job {
	return func(t *testing.T, n int, o Options) *Job {
		job := &Job{}
		for i := range n {
			c := config
			c.Wires, c.Secret, c.Rank, c.MaxInline, c.TM.MaxOps = []string{wire}, []byte("secret"), i, o.MaxInline, cmp.Or(o.MaxOps, c.TM.MaxOps)
			d, err := soft.Open(c)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skipf("wire %s: %v", wire, err)
			}
			require.NoError(t, err)
			job.Devices = append(job.Devices, d)
		}
		return job
	}
}

// Seeds is a Harness.Seeds of n seeds, or of one below level ci: the same in each run, so that
// failures can be repeated.
func Seeds(n int) []uint64 {
	if !testlevel.CI() {
		n = 1
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i + 1)
	}
	return out
}
