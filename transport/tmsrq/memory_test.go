package tmsrq_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// TestLockedMemory: messages that together are more than can be registered wait for each other. One
// that alone is more ends with an error that says why, at the end that cannot register it.
func TestLockedMemory(t *testing.T) {
	const limit = 16 << 20
	f := soft.NewFabric()
	var devs []*soft.Device
	for rank := range 2 {
		cfg := soft.Config{Fabric: f, Rank: rank}
		if rank == 0 {
			cfg = softtest.WithLimits(cfg, softtest.Limits{RegBytes: limit})
		}
		dev, err := soft.Open(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		devs = append(devs, dev)
	}
	s := newStackOf(t, devs, false)
	refused := func(r progress.Request) {
		_, err := s.end(r)
		require.ErrorIs(t, err, syscall.ENOMEM)
		require.ErrorContains(t, err, "no memory can be registered for 16777216 bytes, beside ")
	}
	for round := range 4 {
		var all []progress.Request
		for i := range uint64(4) {
			from := round % 2 // to the other one
			all = append(all, s.e[from].Isend(1-from, i, make([]byte, limit/2)), s.e[1-from].Irecv(from, i, exact, make([]byte, limit/2)))
		}
		for _, r := range all {
			_, err := s.end(r)
			require.NoError(t, err)
		}
		refused(s.e[0].Isend(1, 5, make([]byte, limit)))
		in := s.e[0].Irecv(1, 6, exact, make([]byte, limit))
		out := s.e[1].Isend(0, 6, make([]byte, limit))
		refused(in)
		_, err := s.end(out)
		require.NoError(t, err, "it was received, as far as the sender is concerned")
	}
}
