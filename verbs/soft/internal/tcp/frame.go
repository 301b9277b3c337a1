// Package tcp is the wire over TCP connections.
package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Sizes in bytes from which on payloads are not copied.
const (
	DirectFrom = 16 << 10 // bodies are written from the caller's memory
	PlaceFrom  = 8 << 10  // payloads are read to their destination (input.placed)
)

// A frame on a TCP connection is a header and a payload. The first 16 bytes of the header are the
// fields of wire.Header (little-endian)
//
//	Op, Flags, Status, extras, Length (4 bytes), QPN (4), PSN (4)
//
// and extras says which of Imm (4), RKey (4), Addr (8) and Total (8) follow, in this order. Those
// that do not follow are 0, or, for Total, equal to Length with totalLength. The version of the
// format is that of the handshake.
const (
	extraImm    uint8 = 1 << 0
	extraRKey   uint8 = 1 << 1
	extraAddr   uint8 = 1 << 2
	extraTotal  uint8 = 1 << 3
	totalLength uint8 = 1 << 4 // Total is Length
	extraKnown        = extraImm | extraRKey | extraAddr | extraTotal | totalLength

	// opAccused is the frame with which an end that has found a violation closes the connection,
	// opClosed that of an end whose device is closed.
	opAccused = wire.OpEnd
	opClosed  = wire.OpEnd + 1

	frameHeader    = 16
	maxFrameHeader = frameHeader + 24
	maxPayload     = 64 << 10 // bytes
	// maxRead is the most payload of an OpReadResp. It is read from the socket to its destination
	// without a buffer in between, and larger frames need fewer system calls. But what a full
	// socket does not take is copied, and meanwhile nobody else has the device.
	maxRead = 1 << 20
)

// maxLength is the most payload bytes of a frame.
func maxLength(op wire.Opcode) uint32 {
	if op == wire.OpReadResp {
		return maxRead
	}
	return maxPayload
}

// extraSize is the number of header bytes behind the first 16, by extras.
var extraSize = func() (t [extraKnown + 1]uint8) {
	for i := range t {
		for bit, n := range map[uint8]uint8{extraImm: 4, extraRKey: 4, extraAddr: 8, extraTotal: 8} {
			if uint8(i)&bit != 0 {
				t[i] += n
			}
		}
	}
	return t
}()

// appendFrameHeader appends the encoding of h.
func appendFrameHeader(b []byte, h *wire.Header) []byte {
	at := len(b)
	b = append(b, byte(h.Op), h.Flags, h.Status, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	x := b[at : at+frameHeader]
	binary.LittleEndian.PutUint32(x[4:], h.Length)
	binary.LittleEndian.PutUint32(x[8:], h.QPN)
	binary.LittleEndian.PutUint32(x[12:], h.PSN)
	var extras uint8
	if h.Total == uint64(h.Length) {
		extras = totalLength
	}
	if h.Imm|h.RKey == 0 && h.Addr == 0 && (extras != 0 || h.Total == 0) {
		x[3] = extras
		return b
	}
	return appendExtras(b, at, h, extras)
}

// appendExtras completes the encoding of a header that starts at b[at:].
func appendExtras(b []byte, at int, h *wire.Header, extras uint8) []byte {
	if h.Imm != 0 {
		extras |= extraImm
		b = binary.LittleEndian.AppendUint32(b, h.Imm)
	}
	if h.RKey != 0 {
		extras |= extraRKey
		b = binary.LittleEndian.AppendUint32(b, h.RKey)
	}
	if h.Addr != 0 {
		extras |= extraAddr
		b = binary.LittleEndian.AppendUint64(b, h.Addr)
	}
	if extras&totalLength == 0 && h.Total != 0 {
		extras |= extraTotal
		b = binary.LittleEndian.AppendUint64(b, h.Total)
	}
	b[at+3] = extras
	return b
}

// decodeFrameHeader decodes the header at the start of b into h and returns its size, or 0 if b
// does not have all of it yet. It checks extras and Length.
func decodeFrameHeader(b []byte, h *wire.Header) (n int, err error) {
	if len(b) < frameHeader {
		return 0, nil
	}
	extras := b[3]
	h.Length = binary.LittleEndian.Uint32(b[4:])
	if extras&^extraKnown != 0 || extras&(extraTotal|totalLength) == extraTotal|totalLength {
		return 0, fmt.Errorf("frame with header fields %#x: this version knows %#x", extras, extraKnown)
	}
	switch op := wire.Opcode(b[0]); {
	case op == opAccused:
		return 0, verbs.ErrAccused
	case op == opClosed:
		return 0, verbs.ErrPeerClosed
	case op > opClosed:
		return 0, fmt.Errorf("frame with unknown opcode %d", op)
	}
	if most := maxLength(wire.Opcode(b[0])); h.Length > most {
		return 0, fmt.Errorf("frame with a payload of %d bytes: the most is %d", h.Length, most)
	}
	n = frameHeader + int(extraSize[extras])
	if len(b) < n {
		return 0, nil
	}
	h.Op, h.Flags, h.Status = wire.Opcode(b[0]), b[1], b[2]
	h.QPN = binary.LittleEndian.Uint32(b[8:])
	h.PSN = binary.LittleEndian.Uint32(b[12:])
	h.Imm, h.RKey, h.Addr, h.Total = 0, 0, 0, 0
	if extras == totalLength {
		h.Total = uint64(h.Length)
		return n, nil
	}
	decodeExtras(b[frameHeader:n], extras, h)
	return n, nil
}

// decodeExtras decodes the fields behind the first 16 bytes of a header.
func decodeExtras(b []byte, extras uint8, h *wire.Header) {
	if extras&extraImm != 0 {
		h.Imm = binary.LittleEndian.Uint32(b)
		b = b[4:]
	}
	if extras&extraRKey != 0 {
		h.RKey = binary.LittleEndian.Uint32(b)
		b = b[4:]
	}
	if extras&extraAddr != 0 {
		h.Addr = binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
	switch {
	case extras&extraTotal != 0:
		h.Total = binary.LittleEndian.Uint64(b)
	case extras&totalLength != 0:
		h.Total = uint64(h.Length)
	}
}
