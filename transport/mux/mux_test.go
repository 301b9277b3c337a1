package mux_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/mux"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// devices are the two devices of a rank: near reaches the ranks of the same parity, the other one
// all.
type devices struct {
	verbs.Device
	near verbs.Device
}

func (d *devices) Name() string { return d.near.Name() + "," + d.Device.Name() }

func (d *devices) Close() error { return errors.Join(d.near.Close(), d.Device.Close()) }

func opener(fo softtest.FabricOptions) func(*testing.T, int, transporttest.Options) *transporttest.Job {
	return func(t *testing.T, n int, o transporttest.Options) *transporttest.Job {
		fo.Seed = o.Seed
		far, near := softtest.NewFabric(fo), []*soft.Fabric{softtest.NewFabric(fo), softtest.NewFabric(fo)}
		open := func(f *soft.Fabric, rank int) *soft.Device {
			d, err := soft.Open(softtest.WithTM(soft.Config{Fabric: f, Rank: rank, MaxInline: o.MaxInline}, softtest.TM{Strict: true, MaxOps: o.MaxOps}))
			require.NoError(t, err)
			return d
		}
		kills := make([]func(), n)
		job := &transporttest.Job{Kill: func(rank int) { kills[rank]() }}
		for i := range n {
			f := near[i%2]
			a, b := open(far, i), open(f, i)
			kills[i] = func() { softtest.Kill(far, a); softtest.Kill(f, b) }
			job.Devices = append(job.Devices, &devices{a, b})
		}
		return job
	}
}

// both opens the transport of a rank: the near device where it reaches the peer, else the other.
func both(tags bool) transporttest.Opener {
	return func(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
		d, o := dev.(*devices), o.Small()
		return mux.New(size, sink,
			func(sink transport.Sink) (transport.Transport, error) {
				if tags {
					return tmsrq.New(tmsrq.Config{Device: d.near, Rank: rank, Size: size, MaxEager: o.MaxEager,
						SRQDepth: o.SRQDepth, SendDepth: o.SendDepth, MaxTags: o.MaxTags, Job: "mux"}, sink)
				}
				return newRC(d.near, rank, size, o, sink)
			},
			func(sink transport.Sink) (transport.Transport, error) { return newRC(d.Device, rank, size, o, sink) })
	}
}

// newRC opens a transport with few and small buffers.
func newRC(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	o = o.Small()
	return rc.New(rc.Config{Device: dev, Rank: rank, Size: size, MaxEager: o.MaxEager, SRQDepth: o.SRQDepth,
		SendDepth: o.SendDepth, Job: "mux"}, sink)
}

func TestLoop(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{Devices: opener(softtest.FabricOptions{}), New: both(false), OwnAddress: true})
}

// TestLoopRough: the wires delay, cut and refuse at random; the first path also has a tag list.
func TestLoopRough(t *testing.T) {
	testlevel.SkipIfQuick(t)
	rough := softtest.FabricOptions{MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 512, Queue: 4}
	transporttest.Run(t, transporttest.Harness{Devices: opener(rough), New: both(true), OwnAddress: true, Seeds: transporttest.Seeds(2)})
}

func TestCovers(t *testing.T) {
	ranks := make([]transport.Transport, 3)
	job := opener(softtest.FabricOptions{})(t, len(ranks), transporttest.Options{})
	for i, d := range job.Devices {
		tr, err := both(true)(d, i, len(ranks), transporttest.Options{MaxTags: 4}, new(transporttest.Recorder))
		require.NoError(t, err)
		ranks[i] = tr
	}
	list := ranks[0].TagList()
	require.False(t, list.Covers(2), "not connected")
	for i := range ranks {
		require.NoError(t, ranks[0].Connect(i, ranks[i].Address()))
		require.Equal(t, i != 1, list.Covers(i))
	}
	require.False(t, list.Covers(-1))
	require.False(t, list.Covers(3))
	require.Equal(t, "soft,soft", ranks[0].Caps().Device)
	for i, tr := range ranks {
		require.NoError(t, tr.Close())
		require.NoError(t, job.Devices[i].Close())
	}
}

func TestRefused(t *testing.T) {
	job := opener(softtest.FabricOptions{})(t, 2, transporttest.Options{})
	a, err := both(false)(job.Devices[0], 0, 2, transporttest.Options{}, new(transporttest.Recorder))
	require.NoError(t, err)
	one, err := newRC(job.Devices[1], 1, 2, transporttest.Options{}, new(transporttest.Recorder))
	require.NoError(t, err)
	b, err := mux.New(2, new(transporttest.Recorder), func(transport.Sink) (transport.Transport, error) { return one, nil })
	require.NoError(t, err)
	require.ErrorContains(t, a.Connect(1, one.Address()), "rank 1: not an address of several devices")
	require.ErrorContains(t, a.Connect(1, b.Address()), "rank 1: it has 1 devices, this rank 2")
	good := a.Address()
	for n := range good {
		require.Error(t, a.Connect(0, good[:n]))
	}
	require.Error(t, a.Connect(0, append(good[:len(good):len(good)], 0)))
	require.ErrorContains(t, a.Connect(0, append([]byte("TMM\x02"), good[4:]...)), "version 2")
	require.ErrorContains(t, a.Connect(2, good), "the job has 2 ranks")
	require.NoError(t, a.Connect(0, good))
	require.ErrorContains(t, a.Connect(0, good), "connected already")
	_, err = mux.New(2, new(transporttest.Recorder))
	require.Error(t, err)
	for _, c := range []interface{ Close() error }{a, b, job.Devices[0], job.Devices[1]} {
		require.NoError(t, c.Close())
	}
	require.Error(t, a.Wait(), "closed")
}

// TestOpenFails: New closes the transports that it opened before a failure.
func TestOpenFails(t *testing.T) {
	job := opener(softtest.FabricOptions{})(t, 1, transporttest.Options{})
	_, err := mux.New(1, new(transporttest.Recorder),
		func(sink transport.Sink) (transport.Transport, error) {
			return newRC(job.Devices[0], 0, 1, transporttest.Options{}, sink)
		},
		func(transport.Sink) (transport.Transport, error) { return nil, errors.New("no such device") })
	require.ErrorContains(t, err, "no such device")
	require.NoError(t, job.Devices[0].Close(), "nothing of it is in use")
}
