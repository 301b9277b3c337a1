package rc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

func openLoop(t *testing.T, f *soft.Fabric, rank int) *soft.Device {
	t.Helper()
	dev, err := soft.Open(soft.Config{Fabric: f, Rank: rank})
	require.NoError(t, err)
	return dev
}

// TestConfig: New reports all faults at once, and leaves nothing open in the device.
func TestConfig(t *testing.T) {
	dev := openLoop(t, soft.NewFabric(), 0)
	_, err := rc.New(rc.Config{}, nil)
	require.ErrorContains(t, err, "Device")
	_, err = rc.New(rc.Config{Device: dev, Rank: 5, Size: 3, MaxEager: 1 << 30, SRQDepth: -1, SendDepth: 1,
		Job: strings.Repeat("x", 100)}, nil)
	for _, name := range []string{"Rank", "MaxEager", "SRQDepth", "SendDepth", "Job"} {
		require.ErrorContains(t, err, name)
	}
	require.NoError(t, dev.Close())
	dev, err = soft.Open(softtest.WithLimits(soft.Config{Fabric: soft.NewFabric()}, softtest.Limits{MaxCQE: 64}))
	require.NoError(t, err)
	_, err = rc.New(rc.Config{Device: dev, Size: 2, SendDepth: 64}, nil)
	require.ErrorContains(t, err, "completion queue of 80, the device has 64")
	require.NoError(t, dev.Close())
}

// TestOpenFails uses up the device's only completion channel: New must undo what it did.
func TestOpenFails(t *testing.T) {
	dev := openLoop(t, soft.NewFabric(), 0)
	first, err := rc.New(rc.Config{Device: dev, Size: 1}, new(transporttest.Recorder))
	require.NoError(t, err)
	_, err = rc.New(rc.Config{Device: dev, Size: 1}, new(transporttest.Recorder))
	require.ErrorContains(t, err, "channel")
	require.NoError(t, first.Close())
	require.NoError(t, dev.Close())
}

// TestLargeJob: the address, and the completion queue, are as long as in a small job.
func TestLargeJob(t *testing.T) {
	dev := openLoop(t, soft.NewFabric(), 0)
	tr, err := rc.New(rc.Config{Device: dev, Size: 100_000}, new(transporttest.Recorder))
	require.NoError(t, err)
	a, err := format.DecodeAddress(tr.Address())
	require.NoError(t, err)
	require.Equal(t, 100_000, a.Size)
	require.NoError(t, tr.Close())
	require.NoError(t, dev.Close())
}
