package rc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Address is the decoded form of Transport.Address: all that a peer needs to connect.
type Address struct {
	Mode     string // "rc" or "tmsrq": both ends must agree (TMO 1.3)
	Job      string
	Rank     int
	Size     int
	MaxEager int
	MTU      int // verbs.MTU of this end; a path uses the smaller of both ends'
	RdAtomic int // RDMA READs that each queue pair of this end answers concurrently
	CellAddr uint64
	CellRKey uint32
	Device   []byte     // verbs.Device.Address
	QPNs     [][]uint32 // queue pair numbers by rank; tmsrq has two sets (TMO 1.3)
}

// The encoding: magic, version, then the fields of Address in this order; strings are prefixed with
// their length in one byte (Device: two bytes); integers are little-endian. Every change needs a
// new version.
const (
	addressMagic   = "TMX"
	addressVersion = 1

	maxRanks      = 1 << 20
	maxMode       = 16
	maxJob        = 64
	maxDeviceAddr = 1 << 13
	maxQPNSets    = 4
)

var errAddressShort = errors.New("the address is cut short")

// Encode returns the bytes that DecodeAddress decodes.
func (a *Address) Encode() []byte {
	b := append([]byte(addressMagic), addressVersion)
	b = append(append(b, byte(len(a.Mode))), a.Mode...)
	b = append(append(b, byte(len(a.Job))), a.Job...)
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(a.Rank))
	b = le.AppendUint32(b, uint32(a.Size))
	b = le.AppendUint32(b, uint32(a.MaxEager))
	b = append(b, byte(a.MTU), byte(a.RdAtomic))
	b = le.AppendUint64(b, a.CellAddr)
	b = le.AppendUint32(b, a.CellRKey)
	b = append(le.AppendUint16(b, uint16(len(a.Device))), a.Device...)
	b = append(b, byte(len(a.QPNs)))
	for _, set := range a.QPNs {
		for _, n := range set {
			b = le.AppendUint32(b, n)
		}
	}
	return b
}

// decoder reads fields from a peer's bytes. After the first missing field it returns zeroes and
// sets bad.
type decoder struct {
	b     []byte
	short bool
}

func (d *decoder) cut(n int) []byte {
	if d.short || n > len(d.b) {
		d.short = true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uint(size int) uint64 {
	var v [8]byte
	copy(v[:], d.cut(size))
	return binary.LittleEndian.Uint64(v[:])
}

// DecodeAddress decodes the result of a peer's Encode, of which it retains nothing. It checks the
// form only.
func DecodeAddress(b []byte) (*Address, error) {
	d := decoder{b: b}
	magic := string(d.cut(len(addressMagic)))
	switch version := d.uint(1); {
	case d.short:
		return nil, errAddressShort
	case magic != addressMagic:
		return nil, errors.New("this is not the address of a transport")
	case version != addressVersion:
		return nil, fmt.Errorf("it speaks version %d of the protocol, this rank version %d: run the same build everywhere",
			version, addressVersion)
	}
	a := &Address{Mode: string(d.cut(int(d.uint(1)))), Job: string(d.cut(int(d.uint(1))))}
	a.Rank, a.Size, a.MaxEager = int(d.uint(4)), int(d.uint(4)), int(d.uint(4))
	a.MTU, a.RdAtomic = int(d.uint(1)), int(d.uint(1))
	a.CellAddr, a.CellRKey = d.uint(8), uint32(d.uint(4))
	a.Device = append(a.Device, d.cut(int(d.uint(2)))...)
	sets := int(d.uint(1))
	if err := a.check(&d, sets); err != nil {
		return nil, err
	}
	for range sets {
		set := make([]uint32, a.Size)
		for i := range set {
			set[i] = uint32(d.uint(4))
		}
		a.QPNs = append(a.QPNs, set)
	}
	return a, nil
}

// check validates the decoded sizes before memory is allocated for them.
func (a *Address) check(d *decoder, sets int) error {
	switch {
	case d.short:
		return errAddressShort
	case len(a.Mode) > maxMode || len(a.Job) > maxJob || len(a.Device) > maxDeviceAddr:
		return errors.New("a name in the address is too long")
	case a.Size < 1 || a.Size > maxRanks || a.Rank >= a.Size:
		return fmt.Errorf("the address is of rank %d in a job of %d", a.Rank, a.Size)
	case a.MTU < 1 || a.MTU > 5:
		return fmt.Errorf("the address has the MTU code %d: there are 1 to 5", a.MTU)
	case sets < 1 || sets > maxQPNSets:
		return fmt.Errorf("the address has %d sets of queue pairs", sets)
	case len(d.b) != sets*a.Size*4:
		return fmt.Errorf("the address has %d bytes of queue pair numbers, %d sets for %d ranks take %d", len(d.b), sets, a.Size,
			sets*a.Size*4)
	}
	return nil
}

// Accept checks that the transport with address a can connect to peer, the address of rank. The
// error names the difference.
func (a *Address) Accept(peer *Address, rank int) error {
	switch {
	case peer.Mode != a.Mode:
		return fmt.Errorf("it uses transport %s, this rank %s: choose the same everywhere", quote(peer.Mode), quote(a.Mode))
	case peer.Job != a.Job:
		return fmt.Errorf("it belongs to job %s, this rank to %s", quote(peer.Job), quote(a.Job))
	case peer.Size != a.Size:
		return fmt.Errorf("its job has %d ranks, this one %d", peer.Size, a.Size)
	case peer.Rank != rank:
		return fmt.Errorf("the address is rank %d's", peer.Rank)
	case peer.MaxEager != a.MaxEager:
		return fmt.Errorf("its eager limit is %d bytes, this rank's %d: set the same everywhere", peer.MaxEager, a.MaxEager)
	case len(peer.QPNs) != len(a.QPNs):
		return fmt.Errorf("it has %d sets of queue pairs, this rank %d", len(peer.QPNs), len(a.QPNs))
	}
	return nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
