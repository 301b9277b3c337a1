package rc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs/soft"
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
	_, err = rc.New(rc.Config{Device: dev, Size: 10_000, SendDepth: 10_000}, nil)
	require.ErrorContains(t, err, "completion queue")
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

// TestLargeJob: the default send depth is reduced before the completion queue gets too large.
func TestLargeJob(t *testing.T) {
	dev := openLoop(t, soft.NewFabric(), 0)
	tr, err := rc.New(rc.Config{Device: dev, Size: 300}, new(transporttest.Recorder))
	require.NoError(t, err)
	a, err := format.DecodeAddress(tr.Address())
	require.NoError(t, err)
	require.Len(t, a.QPNs[0], 300)
	require.NoError(t, tr.Close())
	require.NoError(t, dev.Close())
}
