package tmsrq_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// strict devices check the host's side of the bargain: V11, V13, V14, V19.
var strict = soft.TMConfig{Strict: true}

func newTM(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	return tmsrq.New(tmsrq.Config{Device: dev, Rank: rank, Size: size, MaxEager: o.MaxEager, SRQDepth: o.SRQDepth,
		SendDepth: o.SendDepth, MaxTags: o.MaxTags, Job: "conformance"}, sink)
}

// loopDevices opens devices on a fabric of their own.
func loopDevices(fo soft.FabricOptions, config soft.Config) func(*testing.T, int, transporttest.Options) *transporttest.Job {
	return func(t *testing.T, n int, o transporttest.Options) *transporttest.Job {
		fo.Seed = o.Seed
		f := soft.NewFabric(fo)
		devs := make([]*soft.Device, n)
		job := &transporttest.Job{Kill: func(rank int) { f.Kill(devs[rank]) }}
		for i := range n {
			config.Fabric, config.Rank, config.MaxInline = f, i, o.MaxInline
			d, err := soft.Open(config)
			require.NoError(t, err)
			devs[i] = d
			job.Devices = append(job.Devices, d)
		}
		return job
	}
}

// wireDevices opens devices of one process that talk over a wire between processes.
func wireDevices(wire string, config soft.Config) func(*testing.T, int, transporttest.Options) *transporttest.Job {
	return func(t *testing.T, n int, o transporttest.Options) *transporttest.Job {
		job := &transporttest.Job{}
		for i := range n {
			config.Wires, config.Secret, config.Rank, config.MaxInline = []string{wire}, []byte("secret"), i, o.MaxInline
			d, err := soft.Open(config)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skipf("wire %s: %v", wire, err)
			}
			require.NoError(t, err)
			job.Devices = append(job.Devices, d)
		}
		return job
	}
}

func seeds(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i + 1)
	}
	return out
}

func TestLoop(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: loopDevices(soft.FabricOptions{}, soft.Config{TM: strict}), New: newTM, Tags: true, Long: !testing.Short()})
}

// TestLoopRough lets the wire delay, cut and refuse at random.
func TestLoopRough(t *testing.T) {
	rough := soft.FabricOptions{MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 512, Queue: 4}
	transporttest.Run(t, transporttest.Harness{Devices: loopDevices(rough, soft.Config{TM: strict}), New: newTM, Tags: true, Seeds: seeds(3)})
}

func TestSHM(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: wireDevices(soft.WireSHM, soft.Config{TM: strict}), New: newTM, Tags: true})
}

// TestSHMCopied is without direct access to peers' memory.
func TestSHMCopied(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: wireDevices(soft.WireSHM, soft.Config{TM: strict, NoDirect: true, RingBytes: 16 << 10}), New: newTM, Tags: true})
}

func TestTCP(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: wireDevices(soft.WireTCP, soft.Config{TM: strict}), New: newTM, Tags: true})
}
