package soft

import (
	"encoding/binary"
	"fmt"
)

// A frame on a TCP connection is a header and a payload. The header's first 16 bytes,
// little-endian, are
//
//	op, flags, status, extras, length (4 bytes), qpn (4), psn (4)
//
// and extras says which of imm (4), rkey (4), addr (8) and total (8) follow, in this order. What is
// not there is zero, except that total may be said to be length. The version is agreed in the
// handshake.
const (
	extraImm    uint8 = 1 << 0
	extraRKey   uint8 = 1 << 1
	extraAddr   uint8 = 1 << 2
	extraTotal  uint8 = 1 << 3
	totalLength uint8 = 1 << 4 // total is length
	extraKnown        = extraImm | extraRKey | extraAddr | extraTotal | totalLength

	frameHeader    = 16
	maxFrameHeader = frameHeader + 24
	tcpMaxPayload  = 64 << 10
	// tcpMaxRead is the same for what a read has read, which goes from the reader's memory to where
	// it belongs without a buffer in between: the fewer system calls the better, up to here.
	tcpMaxRead = 512 << 10
)

// maxLength is the most payload of a frame.
func maxLength(op opcode) uint32 {
	if op == opReadResp {
		return tcpMaxRead
	}
	return tcpMaxPayload
}

// extraSize is the number of bytes that follow the first 16.
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

// appendFrameHeader encodes h.
func appendFrameHeader(b []byte, h *header) []byte {
	at := len(b)
	b = append(b, byte(h.op), h.flags, h.status, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	x := b[at : at+frameHeader]
	binary.LittleEndian.PutUint32(x[4:], h.length)
	binary.LittleEndian.PutUint32(x[8:], h.qpn)
	binary.LittleEndian.PutUint32(x[12:], h.psn)
	var extras uint8
	if h.total == uint64(h.length) {
		extras = totalLength
	}
	if h.imm|h.rkey == 0 && h.addr == 0 && (extras != 0 || h.total == 0) {
		x[3] = extras
		return b
	}
	return appendExtras(b, at, h, extras)
}

func appendExtras(b []byte, at int, h *header, extras uint8) []byte {
	if h.imm != 0 {
		extras |= extraImm
		b = binary.LittleEndian.AppendUint32(b, h.imm)
	}
	if h.rkey != 0 {
		extras |= extraRKey
		b = binary.LittleEndian.AppendUint32(b, h.rkey)
	}
	if h.addr != 0 {
		extras |= extraAddr
		b = binary.LittleEndian.AppendUint64(b, h.addr)
	}
	if extras&totalLength == 0 && h.total != 0 {
		extras |= extraTotal
		b = binary.LittleEndian.AppendUint64(b, h.total)
	}
	b[at+3] = extras
	return b
}

// decodeFrameHeader decodes the header at the start of b into h. n is its size; 0: b does not have
// all of it yet. What the header says about lengths has been checked.
func decodeFrameHeader(b []byte, h *header) (n int, err error) {
	if len(b) < frameHeader {
		return 0, nil
	}
	extras := b[3]
	h.length = binary.LittleEndian.Uint32(b[4:])
	if extras&^extraKnown != 0 || extras&(extraTotal|totalLength) == extraTotal|totalLength {
		return 0, fmt.Errorf("frame with header fields %#x: this version knows %#x", extras, extraKnown)
	}
	if most := maxLength(opcode(b[0])); h.length > most {
		return 0, fmt.Errorf("frame with a payload of %d bytes: the most is %d", h.length, most)
	}
	n = frameHeader + int(extraSize[extras])
	if len(b) < n {
		return 0, nil
	}
	h.op, h.flags, h.status = opcode(b[0]), b[1], b[2]
	h.qpn = binary.LittleEndian.Uint32(b[8:])
	h.psn = binary.LittleEndian.Uint32(b[12:])
	h.imm, h.rkey, h.addr, h.total = 0, 0, 0, 0
	if extras == totalLength {
		h.total = uint64(h.length)
		return n, nil
	}
	decodeExtras(b[frameHeader:n], extras, h)
	return n, nil
}

func decodeExtras(b []byte, extras uint8, h *header) {
	if extras&extraImm != 0 {
		h.imm = binary.LittleEndian.Uint32(b)
		b = b[4:]
	}
	if extras&extraRKey != 0 {
		h.rkey = binary.LittleEndian.Uint32(b)
		b = b[4:]
	}
	if extras&extraAddr != 0 {
		h.addr = binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
	switch {
	case extras&extraTotal != 0:
		h.total = binary.LittleEndian.Uint64(b)
	case extras&totalLength != 0:
		h.total = uint64(h.length)
	}
}
