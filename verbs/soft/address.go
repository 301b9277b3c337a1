package soft

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// deviceID names a device of a job: random, made at Open.
type deviceID [16]byte

// address is where and how a device can be reached, decoded from Device.Address.
type address struct {
	id   deviceID
	host [16]byte // same value: same host, and shared memory may work (hash of boot id and of the namespaces that matter)
	rank uint32   // for error messages
	pid  uint32
	shm  string   // abstract Unix socket; empty: no shm
	tcp  []string // host:port candidates; empty: no tcp
	loop uint64   // fabric of the loop wire; 0: none
}

// The encoded form is: magic with the version in its last byte, id, host, rank, pid, loop, shm,
// number of tcp candidates, candidates. Integers are little-endian, strings have one byte of
// length.
const (
	addressMagic   = "TMA\x01"
	addressFixed   = len(addressMagic) + 16 + 16 + 4 + 4 + 8
	maxAddressText = 255
	maxAddressTCP  = 16
	maxAddressSize = addressFixed + 1 + maxAddressText + 1 + maxAddressTCP*(1+maxAddressText)
)

var errAddressShort = errors.New("device address is cut short")

// encode gives the bytes that decodeAddress takes. What would not fit is left out: candidates
// beyond the limits.
func (a *address) encode() []byte {
	b := make([]byte, 0, 128)
	b = append(b, addressMagic...)
	b = append(b, a.id[:]...)
	b = append(b, a.host[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.rank)
	b = binary.LittleEndian.AppendUint32(b, a.pid)
	b = binary.LittleEndian.AppendUint64(b, a.loop)
	b = appendText(b, a.shm)
	at, n := len(b), 0
	b = append(b, 0)
	for _, c := range a.tcp {
		if n < maxAddressTCP && c != "" && len(c) <= maxAddressText {
			b = appendText(b, c)
			n++
		}
	}
	b[at] = byte(n)
	return b
}

func appendText(b []byte, s string) []byte {
	if len(s) > maxAddressText {
		s = ""
	}
	b = append(b, byte(len(s)))
	return append(b, s...)
}

// decodeAddress decodes what a peer's encode gave. It keeps nothing of b.
func decodeAddress(b []byte) (*address, error) {
	const v = len(addressMagic) - 1
	switch {
	case len(b) > maxAddressSize:
		return nil, fmt.Errorf("device address of %d bytes: the most is %d", len(b), maxAddressSize)
	case len(b) < len(addressMagic):
		return nil, errAddressShort
	case string(b[:v]) != addressMagic[:v]:
		return nil, errors.New("not the address of a tagmatch software device")
	case b[v] != addressMagic[v]:
		return nil, fmt.Errorf("device address of version %d, this build knows version %d", b[v], addressMagic[v])
	case len(b) < addressFixed:
		return nil, errAddressShort
	}
	a := &address{}
	b = b[v+1:]
	b = b[copy(a.id[:], b):]
	b = b[copy(a.host[:], b):]
	a.rank = binary.LittleEndian.Uint32(b)
	a.pid = binary.LittleEndian.Uint32(b[4:])
	a.loop = binary.LittleEndian.Uint64(b[8:])
	if err := a.decodeTexts(b[16:]); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *address) decodeTexts(b []byte) error {
	var ok bool
	if a.shm, b, ok = cutText(b); !ok || len(b) == 0 {
		return errAddressShort
	}
	n := int(b[0])
	b = b[1:]
	if n > maxAddressTCP {
		return fmt.Errorf("device address with %d tcp candidates: the most is %d", n, maxAddressTCP)
	}
	for range n {
		var c string
		if c, b, ok = cutText(b); !ok {
			return errAddressShort
		}
		if c == "" {
			return errors.New("device address with an empty tcp candidate")
		}
		a.tcp = append(a.tcp, c)
	}
	if len(b) != 0 {
		return fmt.Errorf("device address with %d bytes too many", len(b))
	}
	return nil
}

func cutText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	n := int(b[0]) + 1
	return string(b[1:n]), b[n:], true
}

// String names the device in error messages.
func (a *address) String() string {
	switch {
	case len(a.tcp) > 0:
		return fmt.Sprintf("rank %d (pid %d, %s)", a.rank, a.pid, a.tcp[0])
	case a.shm != "":
		return fmt.Sprintf("rank %d (pid %d, %s)", a.rank, a.pid, a.shm)
	}
	return fmt.Sprintf("rank %d (pid %d)", a.rank, a.pid)
}
