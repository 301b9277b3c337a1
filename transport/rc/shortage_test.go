package rc_test

import (
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// smallDevice is a device with few memory regions.
type smallDevice struct {
	verbs.Device
	regions int
	live    int
	refused int
}

func (d *smallDevice) Attr() verbs.DeviceAttr {
	a := d.Device.Attr()
	a.MaxMR = d.regions
	return a
}

func (d *smallDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return &smallPD{pd, d}, err
}

type smallPD struct {
	verbs.PD
	d *smallDevice
}

func (p *smallPD) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	if p.d.live == p.d.regions {
		p.d.refused++
		return nil, &verbs.Error{Op: "reg_mr", Errno: syscall.ENOMEM}
	}
	mr, err := p.PD.RegMR(buf, access)
	if err == nil {
		p.d.live++
	}
	return &smallMR{mr, p.d}, err
}

type smallMR struct {
	verbs.MR
	d *smallDevice
}

func (m *smallMR) Dereg() error {
	m.d.live--
	return m.MR.Dereg()
}

// shortJob is engines on devices with few regions, all polled by the test.
type shortJob struct {
	t    *testing.T
	devs []*smallDevice
	e    []*progress.Engine
}

func newShortJob(t *testing.T, ranks, regions int) *shortJob {
	j := &shortJob{t: t}
	f := soft.NewFabric()
	for rank := range ranks {
		dev, err := soft.Open(soft.Config{Fabric: f, Rank: rank})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		small := &smallDevice{Device: dev, regions: regions}
		e, err := progress.New(progress.Config{Rank: rank, Size: ranks, Manual: true}, func(sink transport.Sink) (transport.Transport, error) {
			return rc.New(rc.Config{Device: small, Rank: rank, Size: ranks, MaxEager: 256}, sink)
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close(nil)) })
		j.devs, j.e = append(j.devs, small), append(j.e, e)
	}
	for _, e := range j.e {
		for rank := range j.e {
			require.NoError(t, e.Connect(rank, j.e[rank].Address()))
		}
	}
	return j
}

// finish polls all ranks until the operations have succeeded.
func (j *shortJob) finish(what string, reqs []progress.Request) {
	j.t.Helper()
	for range 200_000 {
		for _, e := range j.e {
			e.Poll()
		}
		reqs = slices.DeleteFunc(reqs, func(r progress.Request) bool {
			_, ended, err := r.Test()
			require.NoError(j.t, err)
			return ended
		})
		if len(reqs) == 0 {
			return
		}
	}
	j.t.Fatalf("%s: %d operations have not ended", what, len(reqs))
}

// exchange lets two ranks send each other n large messages, all posted at once, with the receives
// before them.
func (j *shortJob) exchange(a, b, n int) (reqs []progress.Request) {
	for _, p := range [][2]int{{a, b}, {b, a}} {
		for range n {
			reqs = append(reqs, j.e[p[1]].Irecv(p[0], uint64(p[0]), math.MaxUint64, make([]byte, 2000)))
		}
		for range n {
			reqs = append(reqs, j.e[p[0]].Isend(p[1], uint64(p[0]), make([]byte, 2000)))
		}
	}
	return reqs
}

// TestManyOffers posts more large sends than the device has regions, to two ranks that do not
// receive. None fails, and messages between the sender and a third rank get through meanwhile.
func TestManyOffers(t *testing.T) {
	const regions, count = 128, 500
	j := newShortJob(t, 4, regions)
	var waiting []progress.Request
	for rank := 1; rank <= 2; rank++ {
		for range count {
			waiting = append(waiting, j.e[0].Isend(rank, 100, make([]byte, 2000)))
		}
	}
	for range 3 {
		j.finish("past ranks that do not receive", j.exchange(0, 3, count))
	}
	require.LessOrEqual(t, j.devs[0].live, regions-regions/8+3, "sends leave regions to reads")
	for rank := 1; rank <= 2; rank++ {
		for range count {
			waiting = append(waiting, j.e[rank].Irecv(0, 100, math.MaxUint64, make([]byte, 2000)))
		}
	}
	j.finish("the others", waiting)
	require.Zero(t, j.devs[0].refused, "the device is asked for more than it has")
}
