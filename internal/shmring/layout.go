package shmring

import "fmt"

const (
	// LineBytes is the size of a line, a cache line.
	LineBytes = 64
	// MinBytes is the smallest ring.
	MinBytes = 4096
	// MaxBytes is the largest ring: lengths have 24 bits.
	MaxBytes = 64 << 20

	firstBytes   = 16 << 10 // of lines, with which a larger ring begins
	controlBytes = 256
	shortHeader  = 16 // word, id
	extHeader    = shortHeader + 24
	shortRoom    = LineBytes - shortHeader
	clearBatch   = 16 // lines cleared ahead in one go
	clearLow     = 4  // more are cleared when fewer are left
	shortLines   = 4  // lines of the longest packet that is not a long one (Producer.Long)
)

// The word: mark<<56 | meta<<32 | form<<24 | length.
const (
	formShort = 0
	formExt   = 1
	formSkip  = 2 // fills the lines up to the end of the ring
	formGrow  = 3 // all lines are used from here on

	markShift   = 56
	metaShift   = 32
	formShift   = 24
	lengthMask  = 1<<formShift - 1
	metaMask    = 1<<(markShift-metaShift) - 1
	formMask    = 1<<(metaShift-formShift) - 1
	controlPart = 0 // offsets in the memory of a ring
	dataPart    = controlPart + controlBytes
)

// Ext is the extension that a packet may carry between its id and its payload.
type Ext [3]uint64

// control is the first part of a ring's memory. Each side writes lines of its own, two apart from
// the other's because processors fetch lines in pairs. What the writer looks at with each packet is
// not beside head, which changes all the time.
type control struct {
	state uint32 // reader: hot or cold
	_     [4]byte
	grant uint64 // reader: epoch<<32 | grants of that epoch that were revoked, a bit each
	_     [48]byte
	head  uint64 // reader: lines before this are free again
	_     [120]byte
	want  uint32 // writer: 1 when it found no room
	busy  uint32 // writer: odd while it copies to the reader's memory; each time another number
	_     [56]byte
}

const (
	// The reader does not poll the ring: set its bit in the inbox. The state of fresh memory.
	cold = 0
	hot  = 1 // the reader polls the ring
)

// mark distinguishes laps of the ring, and a published word from 0.
func mark(line, shift uint64) uint64 { return (0x80 | line>>shift&0x7f) << markShift }

// Size is the memory of a ring with n bytes of lines.
func Size(n int) int { return controlBytes + n }

// First is how much of that a ring uses at first, from its start on.
func First(n int) int { return Size(min(n, firstBytes)) }

// grown is the number of the line behind the one that says that a ring of first lines has grown to
// all. Its place is the first that was not used. It lies so far on that no report of a line before
// it gives the writer room in the first lines; one of a line from there on says that they are free.
func grown(line, first, all uint64) uint64 {
	return (line | (all - 1)) + 1 + first
}

// CheckBytes checks whether a ring may have n bytes of lines.
func CheckBytes(n int) error {
	if n < MinBytes || n > MaxBytes || n&(n-1) != 0 {
		return fmt.Errorf("shmring: ring of %d bytes: use a power of two from %d to %d", n, MinBytes, MaxBytes)
	}
	return nil
}

// MaxPayload is the largest payload in a ring with n bytes of lines. A packet takes at most a
// quarter of the ring, so that it, a skip before it and the quarter that the reader has not
// reported always fit together.
func MaxPayload(n int) int { return n/4 - extHeader }

// checkMemory checks the memory for a ring and returns the number of lines, at first and in all.
func checkMemory(mem []byte) (first, all uint64, err error) {
	n := len(mem) - controlBytes
	if err := CheckBytes(n); err != nil {
		return 0, 0, err
	}
	if !aligned(mem) {
		return 0, 0, fmt.Errorf("shmring: memory of a ring must start at a multiple of %d", LineBytes)
	}
	return uint64(min(n, firstBytes) / LineBytes), uint64(n / LineBytes), nil
}
