package tmsrq_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/tmsrq/tmsrqtest"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// startingAt is newTM for devices whose counters start at n (TMO 5.5).
func startingAt(n uint16) transporttest.Opener {
	return func(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
		tr, err := newTM(dev, rank, size, o, sink)
		if err == nil {
			tmsrqtest.CountFrom(tr.(*tmsrq.Transport), n)
		}
		return tr, err
	}
}

// TestKnobs runs the suite on devices with another behaviour where the sources leave it open (TMO
// 9). The devices are strict: they check that the transport keeps V11, V13, V14 and V19.
func TestKnobs(t *testing.T) {
	testlevel.SkipIfQuick(t)
	for name, tm := range map[string]softtest.TM{
		"incomplete in two": {TwoIncomplete: true, RecvUnexpected: true},
		"small MTU":         {MTU: 256, QuirkSyncReq: true},
		"wrap":              {InitialCount: 65530},
		"few operations":    {MaxOps: 5},
	} {
		t.Run(name, func(t *testing.T) {
			tm.Strict = true
			transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(softtest.FabricOptions{}, softtest.WithTM(soft.Config{}, tm)),
				New: startingAt(tm.InitialCount), Tags: true})
		})
	}
}

// TestDelays runs the tests of the tag list on devices that delay operations, data or FINs, or drop
// SYNCs.
func TestDelays(t *testing.T) {
	testlevel.SkipIfQuick(t)
	for name, tm := range map[string]softtest.TM{
		"operations":   {DelayOps: 7},
		"data":         {DelayData: 9, TwoIncomplete: true},
		"fin":          {DelayFIN: 9},
		"all":          {DelayOps: 5, DelayData: 5, DelayFIN: 5, MTU: 128, Seed: 3},
		"one at once":  {MaxOps: 1, DelayOps: 2},
		"two at once":  {MaxOps: 2, DelayData: 2},
		"lost SYNCs":   {DropSync: 1},
		"all dormant":  {LiveGoDormant: true},
		"expected RNR": {RNRWhenEmpty: true, InitialCount: 65500},
		"random RNR":   {RNREvery: 3, DelayOps: 2},
	} {
		t.Run(name, func(t *testing.T) {
			tm.Strict = true
			rough := softtest.FabricOptions{MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2}
			transporttest.RunTags(t, transporttest.Harness{Devices: transporttest.LoopDevices(rough, softtest.WithTM(soft.Config{}, tm)), Seeds: transporttest.Seeds(2),
				New: startingAt(tm.InitialCount), Tags: true})
		})
	}
}

func open(t testing.TB, f *soft.Fabric, rank int, tm softtest.TM) *soft.Device {
	dev, err := soft.Open(softtest.WithTM(soft.Config{Fabric: f, Rank: rank}, tm))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// TestWithout: a device without tag matching is refused, unless Config.MaxTags asks for no list.
func TestWithout(t *testing.T) {
	none := softtest.TM{MaxNumTags: -1}
	dev := open(t, soft.NewFabric(), 0, none)
	_, err := tmsrq.New(tmsrq.Config{Device: dev, Size: 1}, &transporttest.Recorder{})
	require.ErrorContains(t, err, "tag matching")
	require.ErrorContains(t, err, "rc")
	transporttest.Run(t, transporttest.Harness{Devices: transporttest.LoopDevices(softtest.FabricOptions{}, softtest.WithTM(soft.Config{}, none)),
		New: func(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
			o.MaxTags = -1
			return newTM(dev, rank, size, o, sink)
		}})
}

// TestOtherTransport: rc and tmsrq refuse each other by name (TMO 1.3).
func TestOtherTransport(t *testing.T) {
	f := soft.NewFabric()
	a, err := rc.New(rc.Config{Device: open(t, f, 0, softtest.TM{}), Rank: 0, Size: 2}, &transporttest.Recorder{})
	require.NoError(t, err)
	b, err := tmsrq.New(tmsrq.Config{Device: open(t, f, 1, softtest.TM{}), Rank: 1, Size: 2}, &transporttest.Recorder{})
	require.NoError(t, err)
	for _, err := range []error{a.Connect(1, b.Address()), b.Connect(0, a.Address())} {
		require.ErrorContains(t, err, `"rc"`)
		require.ErrorContains(t, err, `"tmsrq"`)
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

func TestConfig(t *testing.T) {
	dev := open(t, soft.NewFabric(), 0, softtest.TM{MaxNumTags: 100, MaxOps: 10})
	for _, c := range []struct{ want, tags int }{{0, 100}, {7, 7}, {1000, 100}, {-1, 0}} {
		tr, err := tmsrq.New(tmsrq.Config{Device: dev, Size: 1, MaxTags: c.want}, &transporttest.Recorder{})
		require.NoError(t, err)
		if list := tr.TagList(); c.tags > 0 {
			require.Equal(t, c.tags, list.Capacity())
		} else {
			require.Nil(t, list)
		}
		require.NoError(t, tr.Close())
	}
	_, err := tmsrq.New(tmsrq.Config{Device: dev, Size: 1, MaxTags: 1 << 20}, &transporttest.Recorder{})
	require.ErrorContains(t, err, "MaxTags")
	_, err = tmsrq.New(tmsrq.Config{}, &transporttest.Recorder{})
	require.ErrorContains(t, err, "Device")
}

// smallQueues is a device whose completion queues are short.
type smallQueues struct {
	verbs.Device
	cqe int
}

func (d *smallQueues) Attr() verbs.DeviceAttr {
	a := d.Device.Attr()
	a.MaxCQE = d.cqe
	return a
}

func (d *smallQueues) CreateCQ(attr verbs.CQInitAttr) (verbs.CQ, error) {
	if attr.CQE > d.cqe {
		return nil, syscall.EINVAL
	}
	return d.Device.CreateCQ(attr)
}

// TestSmallCQ: sends and the list share what the device's completion queue holds.
func TestSmallCQ(t *testing.T) {
	for _, c := range []struct{ cqe, size, tags int }{{1024, 16, 63}, {1024, 1000, 63}, {400, 64, 15}, {184, 64, 0}} {
		dev := &smallQueues{open(t, soft.NewFabric(), 0, softtest.TM{}), c.cqe}
		tr, err := tmsrq.New(tmsrq.Config{Device: dev, Size: c.size}, &transporttest.Recorder{})
		require.NoError(t, err, "%+v", c)
		if list := tr.TagList(); c.tags > 0 {
			require.Equal(t, c.tags, list.Capacity(), "%+v", c)
		} else {
			require.Nil(t, list)
		}
		require.NoError(t, tr.Close())
	}
	_, err := tmsrq.New(tmsrq.Config{Device: &smallQueues{open(t, soft.NewFabric(), 0, softtest.TM{}), 100}, Size: 64}, &transporttest.Recorder{})
	require.ErrorContains(t, err, "need a completion queue of 157, the device has 100")
}
