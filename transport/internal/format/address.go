package format

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Address is the decoded form of Transport.Address: all that a peer needs to connect.
type Address struct {
	Mode     string // name of the transport: both ends must use the same (TMO 1.3)
	Job      string // name of the job, at most MaxJob bytes; ranks of another job are refused
	Rank     int    // of the transport that made the address, 0 to Size-1
	Size     int    // ranks in the job, 1 to MaxRanks
	MaxEager int    // largest eager payload, bytes; equal on all ranks
	MTU      int    // a verbs.MTU; a path uses the smaller of both ends'
	RdAtomic int    // RDMA READs that each queue pair of this end answers concurrently
	CellAddr uint64 // where this end's credit cells begin: 8 bytes for each rank that may write there
	CellRKey uint32 // of the credit cells
	Device   []byte // verbs.Device.Address, at most MaxDevice bytes
	// QPNs are queue pair numbers: QPNs[set][r] is for rank r. A transport with two queue pairs for
	// each rank has two sets, whose meaning is its own.
	QPNs [][]uint32
}

// The encoding: magic, version, then the fields of Address in this order; strings are prefixed with
// their length in one byte (Device: two bytes); integers are little-endian. Every change needs a
// new version.
const (
	addressMagic   = "TMX"
	addressVersion = 1

	maxMode    = 16 // bytes
	maxQPNSets = 4
)

// Limits of an Address.
const (
	MaxRanks  = 1 << 20
	MaxJob    = 64      // bytes
	MaxDevice = 1 << 13 // bytes
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

// decoder reads fields from a peer's bytes. From the first field on that is missing it returns
// zeroes, and short is set.
type decoder struct {
	b     []byte // not read yet
	short bool
}

// cut returns the next n bytes, as a part of what is decoded.
func (d *decoder) cut(n int) []byte {
	if d.short || n > len(d.b) {
		d.short = true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

// uint returns the next integer, of size bytes.
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
		return nil, fmt.Errorf("it speaks version %d of the transports' protocol, this rank version %d: run the same build of the program on all ranks",
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
	case len(a.Mode) > maxMode || len(a.Job) > MaxJob || len(a.Device) > MaxDevice:
		return errors.New("a name in the address is too long")
	case a.Size < 1 || a.Size > MaxRanks || a.Rank >= a.Size:
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

// Accept checks that a transport with address a can connect to the one of the given rank, whose
// address is peer. The error names the difference.
func (a *Address) Accept(peer *Address, rank int) error {
	switch {
	case peer.Mode != a.Mode:
		return fmt.Errorf("it uses transport %q, this rank %q: give all ranks the same", peer.Mode, a.Mode)
	case peer.Job != a.Job:
		return fmt.Errorf("it belongs to job %q, this rank to %q", peer.Job, a.Job)
	case peer.Size != a.Size:
		return fmt.Errorf("its job has %d ranks, this one %d", peer.Size, a.Size)
	case peer.Rank != rank:
		return fmt.Errorf("the address is rank %d's", peer.Rank)
	case peer.MaxEager != a.MaxEager:
		return fmt.Errorf("its eager limit is %d bytes, this rank's %d: give all ranks the same", peer.MaxEager, a.MaxEager)
	case len(peer.QPNs) != len(a.QPNs):
		return fmt.Errorf("it has %d sets of queue pairs, this rank %d", len(peer.QPNs), len(a.QPNs))
	}
	return nil
}
