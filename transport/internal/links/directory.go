package links

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// directory says which rank has which device, as Connect was told.
type directory struct {
	self     format.Address // of this rank
	device   verbs.Device   // of this rank
	addrs    [][]byte       // by rank: the address of its device; nil before Connect
	byDevice Index          // rank with each device, see deviceKey
	seed     maphash.Seed   // of that hash
}

func (d *directory) init(c *Config) {
	d.self, d.device, d.addrs, d.byDevice, d.seed = c.address(), c.Device, make([][]byte, c.Size), NewIndex(c.Size), maphash.MakeSeed()
}

// Address is what the peers pass to Connect.
func (d *directory) Address() []byte { return d.self.Encode() }

// add enters the device of a rank, whose Address is addr.
func (d *directory) add(rank int, addr []byte) error {
	switch {
	case uint(rank) >= uint(len(d.addrs)):
		return fmt.Errorf("the job has %d ranks", len(d.addrs))
	case d.addrs[rank] != nil:
		return errors.New("it is connected already")
	}
	a, err := format.DecodeAddress(addr)
	if err != nil {
		return err
	}
	if err := d.self.Accept(&a, rank); err != nil {
		return err
	}
	if _, err := d.device.Reaches(a.Device); err != nil {
		return err
	}
	key := d.deviceKey(a.Device)
	if other := d.byDevice.Find(key); other >= 0 { // or, once in 2^64 pairs, one with the same hash
		return fmt.Errorf("its device is that of rank %d: one of the two addresses is false", other)
	}
	d.byDevice.Add(key, uint32(rank))
	d.addrs[rank] = a.Device
	return nil
}

// deviceKey is the key in byDevice of the device at an address: a hash of its identity.
func (d *directory) deviceKey(device []byte) uint64 {
	if i, ok := d.device.(verbs.Identifier); ok {
		device = i.Identity(device)
	}
	return maphash.Bytes(d.seed, device)
}

// rankAt returns the rank with a device, -1 if there is none. No two have the same, see add.
func (d *directory) rankAt(device []byte) int {
	rank := d.byDevice.Find(d.deviceKey(device))
	if rank < 0 || !bytes.Equal(d.addrs[rank], device) {
		return -1
	}
	return rank
}
