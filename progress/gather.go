package progress

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// The parts of a send become one buffer: of a message that goes at once in memory that all sends of
// an engine share, since the transport copies from there, else in memory that is the send's until
// it has ended.

// gather copies parts into buf and returns how many bytes they are; false where it has no room for
// them. Its loop has all registers, which it would not have in its callers: so in scatter.
//
//go:noinline
func gather(buf []byte, parts [][]byte) (n int, ok bool) {
	for _, part := range parts {
		if len(part) == 8 && n <= len(buf)-8 { // as of what lies apart in a matrix
			*(*[8]byte)(buf[n:]) = [8]byte(part)
			n += 8
			continue
		}
		if len(part) > len(buf)-n {
			return 0, false
		}
		n += copy(buf[n:], part)
	}
	return n, true
}

// scatter copies a message into parts, as far as it fits, and returns how much.
//
//go:noinline
func scatter(parts [][]byte, b []byte) (n int) {
	for _, part := range parts {
		if len(part) == 8 && n <= len(b)-8 {
			*(*[8]byte)(part) = [8]byte(b[n:])
			n += 8
			continue
		}
		if n == len(b) {
			break
		}
		n += copy(part, b[n:])
	}
	return n
}

// sizeOf is the size of all parts, at most math.MaxInt, of which there is no memory.
func sizeOf(parts [][]byte) (size int) {
	for _, part := range parts {
		if size += len(part); size < 0 {
			return math.MaxInt
		}
	}
	return size
}

// whole is memory for a message that was gathered.
type whole struct {
	buf   []byte
	class int // of its length
}

// wholes are those that nobody uses, by class. They stay as long as they are used between two
// collections of garbage: a message in memory that is fresh takes twice its time.
var wholes [4 * bits.UintSize]sync.Pool

// wholeClass is the length of the memory for so many bytes, and the class of it: there are four in
// each power of two, so that less than a quarter is of no use.
func wholeClass(size int) (length, class int) {
	last := max(size, 1) - 1
	shift := max(bits.Len(uint(last))-3, 0)
	return (last>>shift + 1) << shift, 4*shift + last>>shift
}

// newWhole has all parts. It fails where no memory can be that large.
func newWhole(parts [][]byte, size int) (*whole, error) {
	if int64(size) > longestSlice {
		return nil, fmt.Errorf("%w: the parts of a message have %d bytes together", ErrInvalid, size)
	}
	length, class := wholeClass(size)
	w, ok := wholes[class].Get().(*whole)
	if !ok {
		w = &whole{make([]byte, length), class}
	}
	gather(w.buf, parts)
	return w, nil
}

func (w *whole) drop() { wholes[w.class].Put(w) }
