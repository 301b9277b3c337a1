package ibverbs_test

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
)

func newRC(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	o = o.Small()
	return rc.New(rc.Config{Device: dev, Rank: rank, Size: size, MaxEager: o.MaxEager, SRQDepth: o.SRQDepth,
		SendDepth: o.SendDepth, Job: "stub"}, sink)
}

func newTM(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	o = o.Small()
	return tmsrq.New(tmsrq.Config{Device: dev, Rank: rank, Size: size, MaxEager: o.MaxEager, SRQDepth: o.SRQDepth,
		SendDepth: o.SendDepth, MaxTags: o.MaxTags, Job: "stub"}, sink)
}

// stubHarness is for transports over the stand-in.
func stubHarness(open transporttest.Opener, tags bool) transporttest.Harness {
	devices := opener("tmstub0", "tmstub1")
	return transporttest.Harness{New: open, Tags: tags, Ranks: 8, Devices: func(t *testing.T, n int, o transporttest.Options) *transporttest.Job {
		if o.MaxOps > 0 {
			t.Setenv("TMSTUB_OPS", strconv.Itoa(o.MaxOps))
		}
		return &transporttest.Job{Devices: devices(t, n)}
	}}
}

// TestStubTransports plays the suite of transports over the stand-in. What C is given must be
// neither freed nor moved.
func TestStubTransports(t *testing.T) {
	testlevel.SkipIfQuick(t)
	if os.Getenv(onStub) == "" {
		again(t, stub(t), "TestStubTransports", "TMSTUB_UNTAGGED=33", "TMSTUB_CANCELED=lost", "GOGC=1", "GODEBUG=clobberfree=1")
		return
	}
	t.Run("rc", func(t *testing.T) { transporttest.Run(t, stubHarness(newRC, false)) })
	t.Run("tmsrq", func(t *testing.T) { transporttest.Run(t, stubHarness(newTM, true)) })
}

// TestStubWorld: two ranks exchange messages of all kinds, which the device matches.
func TestStubWorld(t *testing.T) {
	if os.Getenv(onStub) == "" {
		again(t, stub(t), "TestStubWorld")
		return
	}
	p2ptest.RunConfig(t, 2, p2p.Config{Device: "rdma", OffloadMin: -1}, func(w *p2p.World) {
		require.Equal(t, "tmsrq", w.Metrics().Transport, "auto takes it")
		for round := range 20 {
			for _, n := range []int{0, 8, 5000, 100_000, 3 << 20} {
				pingpong(t, w.Comm(), round, n)
			}
		}
		require.NotZero(t, w.Metrics().Offload.Matched)
	})
}

// pingpong sends n bytes to the other rank and back.
func pingpong(t *testing.T, comm *p2p.Comm, round, n int) {
	want, got := bytes.Repeat([]byte{byte(round)}, n), make([]byte, n)
	ctx, peer := context.Background(), 1-comm.Rank()
	for turn := range 2 {
		if turn == comm.Rank() {
			require.NoError(t, comm.Send(ctx, peer, 7, want))
			continue
		}
		st, err := comm.Recv(ctx, peer, 7, got)
		require.NoError(t, err)
		require.EqualValues(t, n, st.Len)
		require.True(t, bytes.Equal(want, got))
	}
}

// TestStubWithoutTags: where the device cannot do what it announces, tmsrq is refused with the
// reason, and auto takes rc.
func TestStubWithoutTags(t *testing.T) {
	const reason = "TAGMATCH_TEST_REASON"
	if os.Getenv(onStub) == "" {
		dir := stub(t)
		for env, says := range map[string]string{
			"TMSTUB_LINK=ethernet": "port tmstub0:1 is Ethernet",
			"TMSTUB_TM_FLAGS=0":    "no rendezvous",
			"TMSTUB_SRQ_ERRNO=28":  "create_srq_ex: port tmstub0:1: a list of 15 tags and 32 operations",
		} {
			t.Run(env, func(t *testing.T) { again(t, dir, "TestStubWithoutTags", env, reason+"="+says) })
		}
		return
	}
	p2ptest.RunConfig(t, 2, p2p.Config{Device: "rdma"}, func(w *p2p.World) {
		require.Equal(t, "rc", w.Metrics().Transport)
		pingpong(t, w.Comm(), 0, 100_000)
	})
	_, err := p2p.Init(context.Background(), p2p.Config{Device: "rdma", Transport: "tmsrq"})
	require.ErrorContains(t, err, os.Getenv(reason))
	require.ErrorContains(t, err, "use transport rc")
}
