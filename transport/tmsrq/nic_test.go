package tmsrq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// TestAbandonedUntold: a queue pair fails in the middle of a message that was matched, and nothing
// but the receive's completion tells of it. That ends the link, and accuses nobody.
func TestAbandonedUntold(t *testing.T) {
	f := softtest.NewFabric(raceFabric)
	var devs []*soft.Device
	for rank := range 2 {
		cfg := softtest.WithTM(soft.Config{Fabric: f, Rank: rank}, softtest.TM{KillQPPart: 3})
		dev, err := soft.Open(softtest.WithHabits(cfg, softtest.Habits{NoReadFaults: true, StaleState: true, NoEvents: true}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		devs = append(devs, dev)
	}
	r := newRaceRigOf(t, devs)
	r.add(1, 5, make([]byte, maxEager))
	r.send(0, 5, fill(20_000, 3))
	r.until("the loss", func() bool { return len(r.of(1, "lost")) > 0 })
	require.Len(t, r.of(1, "matched"), 1)
	for _, kind := range []string{"delivered", "lost"} {
		ev := r.of(1, kind)
		require.Len(t, ev, 1, kind)
		require.Error(t, ev[0].Err, kind)
		require.NotErrorIs(t, ev[0].Err, transport.ErrProtocol, kind)
	}
}
