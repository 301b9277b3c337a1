package links

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// sharedRegions is the regions of a device, with the peers that they are divided among.
type sharedRegions struct {
	regions
	peers []peer
}

func newSharedRegions(regions, ranks int) *sharedRegions {
	o := &sharedRegions{peers: make([]peer, ranks)}
	o.init(regions, ranks)
	return o
}

// take takes up to n regions for a rank and returns how many it got.
func (o *sharedRegions) take(rank, n int) int {
	for i := range n {
		if !o.room(&o.peers[rank]) {
			return i
		}
		o.regions.take(&o.peers[rank])
	}
	return n
}

func (o *sharedRegions) give(rank, n int) {
	for range n {
		o.regions.give(&o.peers[rank])
	}
}

// TestRegionsShared: a peer that registers all it can leaves half to the next one, and every peer
// has some of its own.
func TestRegionsShared(t *testing.T) {
	const ranks, own, common = 4, 64, 1024 // what reads leave, which have an eighth
	o := newSharedRegions((own*ranks+common)*8/7, ranks)
	const all = 1 << 20
	require.Equal(t, own+common/2, o.take(0, all))
	require.Equal(t, own+common/4, o.take(1, all))
	require.Zero(t, o.take(0, 1), "at its limit")
	require.Equal(t, own+common/8, o.take(2, all))
	require.Equal(t, own, o.take(3, own))

	o.give(1, own+common/4) // what one frees another may have: half of what is free
	free := common - common/2 - common/8
	require.Equal(t, (free-common/8)/2, o.take(2, all))
	require.Zero(t, o.take(0, 1), "it holds more than is free")
	require.Equal(t, own, o.take(1, own))
	for rank := range ranks {
		o.give(rank, o.peers[rank].registered)
	}
	require.Equal(t, own+common/2, o.take(3, all), "all have come back")
}

// TestRegionsManyPeers: however many peers have used up their share, the next one can send.
func TestRegionsManyPeers(t *testing.T) {
	for _, c := range []struct{ regions, ranks int }{{4096, 40}, {200, 40}, {100, 40}, {8, 2}} {
		o := newSharedRegions(c.regions, c.ranks)
		total := 0
		for rank := range c.ranks {
			n := o.take(rank, 1<<20)
			require.Positive(t, n, "%+v: rank %d", c, rank)
			total += n
		}
		require.LessOrEqual(t, total, c.regions-c.regions/8, "%+v: reads have nothing left", c)
		for rank := range c.ranks {
			o.give(rank, o.peers[rank].registered) // its messages were received
			require.Positive(t, o.take(rank, 1<<20), "%+v: rank %d has to wait for others", c, rank)
		}
	}
}

// TestRegionsGrow: 2^18 of 2^20 regions for one peer, while another has as many as it wants.
func TestRegionsGrow(t *testing.T) {
	o := newSharedRegions(1<<20, 2)
	require.Equal(t, 1<<18, o.take(0, 1<<18))
	require.Equal(t, 1<<14, o.take(1, 1<<14))
}

// smallDevice is a device with few regions, and how many it was asked for.
type smallDevice struct {
	verbs.Device
	regions, asked int
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
	p.d.asked++
	return p.PD.RegMR(buf, access)
}

// TestRegister: a peer gets the regions of the device that are its share, and another one for each
// that it gives back. With reads they are no more than the device has. A rank out of range is
// refused.
func TestRegister(t *testing.T) {
	const share = 28 + 14 // half of the 56 that reads leave, and of the others as many as are left
	dev := &smallDevice{Device: openDevice(t), regions: 64}
	tr := self(t, dev, &endSink{})
	buf := make([]byte, 8)
	for tr.Read(0, buf, 0, 0, 1) == nil { // as many reads as there can be, in the regions left to them
	}
	var regions []transport.Region
	for round := range 3 {
		for range share - len(regions) {
			r, err := tr.Register(0, buf)
			require.NoError(t, err)
			regions = append(regions, r)
		}
		_, err := tr.Register(0, buf)
		require.Equal(t, transport.ErrAgain, err)
		require.LessOrEqual(t, dev.asked-5*round, dev.regions)
		for range 5 {
			require.NoError(t, regions[0].Dereg())
			regions = regions[1:]
		}
	}
	for _, r := range regions {
		require.NoError(t, r.Dereg())
	}
	for _, rank := range []int{-1, 1} {
		_, err := tr.Register(rank, buf)
		require.ErrorContains(t, err, "the job has 1 ranks")
	}
}
