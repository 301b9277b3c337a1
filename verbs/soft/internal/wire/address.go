package wire

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// DeviceID identifies a device. It is random.
type DeviceID [16]byte

// NewDeviceID makes the identity of a new device.
func NewDeviceID() (id DeviceID) {
	_, _ = rand.Read(id[:])
	return id
}

// Address says how a device can be reached: Device.Address, decoded.
type Address struct {
	ID   DeviceID
	Host [16]byte // equal where shared memory may work: a hash of boot id, user and namespaces
	Rank uint32   // for error messages
	PID  uint32   // in its own PID namespace
	SHM  string   // abstract Unix socket; empty: no shm
	TCP  []string // host:port, alternatives; empty: no tcp
	Loop uint64   // identity of the loop wire's fabric; 0: none
	// Carried is what the device of a driver that has its lines from this one adds, at most
	// MaxCarried bytes: see verbs.LineDevice.
	Carried string
}

// The encoded form is: magic with the version in its last byte, ID, Host, Rank, PID, Loop, SHM, the
// number of strings in TCP, those, Carried. Integers are little-endian; a string follows a byte
// with its length.
const (
	addressMagic   = "TMA\x02"
	addressFixed   = len(addressMagic) + 16 + 16 + 4 + 4 + 8
	maxAddressText = 255
	MaxAddressTCP  = 16
	MaxCarried     = 64
	MaxAddressSize = addressFixed + 1 + maxAddressText + 1 + MaxAddressTCP*(1+maxAddressText) + 1 + MaxCarried
)

var errAddressShort = errors.New("device address is cut short")

// Encode returns the bytes that DecodeAddress decodes. Strings of TCP that are too long, or too
// many, are left out.
func (a *Address) Encode() []byte {
	b := make([]byte, 0, 128)
	b = append(b, addressMagic...)
	b = append(b, a.ID[:]...)
	b = append(b, a.Host[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.Rank)
	b = binary.LittleEndian.AppendUint32(b, a.PID)
	b = binary.LittleEndian.AppendUint64(b, a.Loop)
	b = AppendText(b, a.SHM)
	at, n := len(b), 0
	b = append(b, 0)
	for _, c := range a.TCP {
		if n < MaxAddressTCP && c != "" && len(c) <= maxAddressText {
			b = AppendText(b, c)
			n++
		}
	}
	b[at] = byte(n)
	return AppendText(b, a.Carried)
}

// AppendText appends a string that CutText reads. One that is too long becomes empty.
func AppendText(b []byte, s string) []byte {
	if len(s) > maxAddressText {
		s = ""
	}
	b = append(b, byte(len(s)))
	return append(b, s...)
}

// DecodeAddress decodes what a peer's Encode has returned. It does not keep b.
func DecodeAddress(b []byte) (*Address, error) {
	const v = len(addressMagic) - 1
	switch {
	case len(b) > MaxAddressSize:
		return nil, fmt.Errorf("device address of %d bytes: the most is %d", len(b), MaxAddressSize)
	case len(b) < len(addressMagic):
		return nil, errAddressShort
	case string(b[:v]) != addressMagic[:v]:
		return nil, errors.New("not the address of a tagmatch software device")
	case b[v] != addressMagic[v]:
		return nil, fmt.Errorf("device address of version %d, this rank knows version %d: run the same build of the program on all ranks", b[v], addressMagic[v])
	case len(b) < addressFixed:
		return nil, errAddressShort
	}
	a := &Address{}
	b = b[v+1:]
	b = b[copy(a.ID[:], b):]
	b = b[copy(a.Host[:], b):]
	a.Rank = binary.LittleEndian.Uint32(b)
	a.PID = binary.LittleEndian.Uint32(b[4:])
	a.Loop = binary.LittleEndian.Uint64(b[8:])
	if err := a.decodeTexts(b[16:]); err != nil {
		return nil, err
	}
	return a, nil
}

// Identity returns the ID in an encoded address, or all of b if it has none.
func Identity(b []byte) []byte {
	if len(b) < addressFixed {
		return b
	}
	return b[len(addressMagic):][:len(DeviceID{})]
}

func (a *Address) decodeTexts(b []byte) error {
	var ok bool
	if a.SHM, b, ok = CutText(b); !ok || len(b) == 0 {
		return errAddressShort
	}
	n := int(b[0])
	b = b[1:]
	if n > MaxAddressTCP {
		return fmt.Errorf("device address with %d tcp candidates: the most is %d", n, MaxAddressTCP)
	}
	for range n {
		var c string
		if c, b, ok = CutText(b); !ok {
			return errAddressShort
		}
		if c == "" {
			return errors.New("device address with an empty tcp candidate")
		}
		a.TCP = append(a.TCP, c)
	}
	if a.Carried, b, ok = CutText(b); !ok {
		return errAddressShort
	}
	if len(a.Carried) > MaxCarried {
		return fmt.Errorf("device address that carries %d bytes: the most is %d", len(a.Carried), MaxCarried)
	}
	if len(b) != 0 {
		return fmt.Errorf("device address with %d bytes too many", len(b))
	}
	return nil
}

// CutText splits a string of AppendText off; ok is false if b is too short.
func CutText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := int(b[0]) + 1
	return string(b[1:n]), b[n:], true
}

// String describes the device in error messages.
func (a *Address) String() string {
	switch {
	case len(a.TCP) > 0:
		return fmt.Sprintf("rank %d (pid %d, %s)", a.Rank, a.PID, a.TCP[0])
	case a.SHM != "":
		return fmt.Sprintf("rank %d (pid %d, %s)", a.Rank, a.PID, a.SHM)
	}
	return fmt.Sprintf("rank %d (pid %d)", a.Rank, a.PID)
}
