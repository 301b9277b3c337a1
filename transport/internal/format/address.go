package format

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Address is the decoded form of Transport.Address. How long its encoding is does not depend on the
// size of the job.
type Address struct {
	Mode     string // name of the transport: both ends must use the same (TMO 1.3)
	Job      string // name of the job, at most MaxJob bytes; ranks of another job are refused
	Size     int    // ranks in the job, 1 to MaxRanks
	MaxEager int    // largest eager payload, bytes; equal on all ranks
	Rank     int    // of the transport that made the address, 0 to Size-1
	Device   []byte // verbs.Device.Address, at most MaxDevice bytes
}

// The encoding: magic, version, then the fields of Address in this order, those that are equal on
// all ranks first; strings are prefixed with their length in one byte (Device: two bytes); integers
// are little-endian. Every change needs a new version.
const (
	addressMagic   = "TMX"
	addressVersion = 2

	maxMode = 16 // bytes
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
	b = le.AppendUint32(b, uint32(a.Size))
	b = le.AppendUint32(b, uint32(a.MaxEager))
	b = le.AppendUint32(b, uint32(a.Rank))
	return append(le.AppendUint16(b, uint16(len(a.Device))), a.Device...)
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

// DecodeAddress decodes the result of a peer's Encode, of which Device is a part. It checks the
// form only.
func DecodeAddress(b []byte) (Address, error) {
	d := decoder{b: b}
	magic := string(d.cut(len(addressMagic)))
	switch version := d.uint(1); {
	case d.short:
		return Address{}, errAddressShort
	case magic != addressMagic:
		return Address{}, errors.New("this is not the address of a transport")
	case version != addressVersion:
		return Address{}, &OtherVersion{int(version), addressVersion}
	}
	a := Address{Mode: string(d.cut(int(d.uint(1)))), Job: string(d.cut(int(d.uint(1))))}
	a.Size, a.MaxEager, a.Rank = int(d.uint(4)), int(d.uint(4)), int(d.uint(4))
	a.Device = d.cut(int(d.uint(2)))
	return a, a.check(&d)
}

// OtherVersion is the error of what is of another version of the protocol than this rank's.
type OtherVersion struct{ Theirs, Own int }

func (e *OtherVersion) Error() string {
	return fmt.Sprintf("it speaks version %d of the transports' protocol, this rank version %d: run the same build of the program on all ranks",
		e.Theirs, e.Own)
}

// check validates what was decoded by d.
func (a *Address) check(d *decoder) error {
	switch {
	case d.short:
		return errAddressShort
	case len(a.Mode) > maxMode || len(a.Job) > MaxJob || len(a.Device) > MaxDevice:
		return errors.New("a name in the address is too long")
	case a.Size < 1 || a.Size > MaxRanks || a.Rank >= a.Size:
		return fmt.Errorf("the address is of rank %d in a job of %d", a.Rank, a.Size)
	case len(d.b) != 0:
		return fmt.Errorf("the address has %d bytes too many", len(d.b))
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
	}
	return nil
}
