package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// inOrder is a Sink that checks that messages come in order of their tags, from 0 on.
type inOrder struct {
	Recorder
	t    *testing.T
	next uint64
}

func (s *inOrder) Eager(_ int, _ uint32, tag uint64, _ []byte) {
	require.Equal(s.t, s.next, tag)
	s.next++
}

// Budget checks that a rank whose device has short completion queues can send to many peers, one
// after the other. Each is not polled any more once it has its messages, and has not confirmed the
// last ones then.
func Budget(t *testing.T, open Opener) {
	const peers, messages = 200, 1000
	f := soft.NewFabric()
	sinks := make([]inOrder, peers+1)
	trs := make([]transport.Transport, peers+1)
	for i := range trs {
		cfg, opts := soft.Config{Fabric: f, Rank: i}, Options{MaxEager: -1, SRQDepth: 48, SendDepth: 4, MaxTags: 16}
		if i == 0 {
			cfg, opts = softtest.WithLimits(cfg, softtest.Limits{MaxCQE: 1024}), Options{MaxEager: -1}
		}
		dev, err := soft.Open(cfg)
		require.NoError(t, err)
		sinks[i].t = t
		trs[i], err = open(dev, i, len(trs), opts, &sinks[i])
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, trs[i].Close())
			require.NoError(t, dev.Close())
		})
	}
	for peer := 1; peer <= peers; peer++ {
		require.NoError(t, trs[0].Connect(peer, trs[peer].Address()))
		require.NoError(t, trs[peer].Connect(0, trs[0].Address()))
		tag := uint64(0)
		untilWith(t, "a peer's messages", func() bool { return sinks[peer].next == messages }, func() {
			for tag < messages && trs[0].SendEager(peer, 0, tag, nil) == nil {
				tag++
			}
			for _, i := range []int{0, peer} {
				_, err := trs[i].Poll()
				require.NoError(t, err)
			}
		})
	}
	untilWith(t, "a drained sender", trs[0].Drained, func() {
		for _, tr := range trs {
			_, err := tr.Poll()
			require.NoError(t, err)
		}
	})
}
