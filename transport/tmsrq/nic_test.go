package tmsrq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// TestAbandonedUntold: a queue pair fails in the middle of a message that was matched, and nothing
// but the receive's completion tells of it. That ends the link, and accuses nobody.
func TestAbandonedUntold(t *testing.T) {
	r := newRaceRigOf(t, nicDevices(t, 2, softtest.TM{KillQPPart: 3}, softtest.Habits{NoReadFaults: true, StaleState: true, NoEvents: true}))
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

// TestNamedLate: a rank sends in the name of another, and the completion of the match does not say
// whose queue pair the message came by. The one behind it does: the liar is lost, and nobody else.
func TestNamedLate(t *testing.T) {
	for _, tag := range []uint64{5, packed(2, 1), packed(7, 1)} {
		r := newRaceRigOf(t, nicDevices(t, 3, softtest.TM{}, softtest.Habits{Tags: true}))
		r.add(1, tag, make([]byte, maxEager))
		require.NoError(t, r.tr[0].SendEager(1, 2, tag, fill(20_000, 3)))
		r.until("the loss", func() bool { return len(r.of(1, "lost")) > 0 })
		require.Len(t, r.of(1, "delivered"), 1)
		for _, e := range []transporttest.Event{r.of(1, "delivered")[0], r.of(1, "lost")[0]} {
			require.ErrorIs(t, e.Err, transport.ErrProtocol)
		}
		require.Equal(t, 0, r.of(1, "lost")[0].Src)
		r.settle()
		require.Len(t, r.of(1, "lost"), 1)
		r.send(2, 5, []byte("not lost"))
		r.event("eager", 0)
	}
}

func nicDevices(t *testing.T, n int, tm softtest.TM, h softtest.Habits) (devices []*soft.Device) {
	f := softtest.NewFabric(raceFabric)
	for rank := range n {
		dev, err := soft.Open(softtest.WithHabits(softtest.WithTM(soft.Config{Fabric: f, Rank: rank}, tm), h))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		devices = append(devices, dev)
	}
	return devices
}
