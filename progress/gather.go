package progress

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// The parts of a send become one buffer: up to the eager limit in memory that all sends of an
// engine share, since the transport copies from there at once, else in memory that is the send's
// until it has ended.

// gather copies parts into buf, which has room for them, and returns how many bytes they are; false
// where it has not.
func gather(buf []byte, parts [][]byte) (n int, ok bool) {
	for _, part := range parts {
		if len(part) > len(buf)-n {
			return 0, false
		}
		if len(part) == 8 { // as of what lies apart in a matrix
			binary.LittleEndian.PutUint64(buf[n:], binary.LittleEndian.Uint64(part))
			n += 8
			continue
		}
		n += copy(buf[n:], part)
	}
	return n, true
}

// scatter copies a message into parts, as far as it fits, and returns how much.
func scatter(parts [][]byte, b []byte) (n int) {
	for _, part := range parts {
		if len(part) == 8 && len(b)-n >= 8 {
			binary.LittleEndian.PutUint64(part, binary.LittleEndian.Uint64(b[n:]))
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

// shareLocked gathers parts in the memory that all sends share; false where they are too long for
// an eager message. They are there until somebody else's are.
func (e *Engine) shareLocked(parts [][]byte) (buf []byte, ok bool) {
	e.mu.AssertHeld("the gathered parts")
	if e.gathered == nil {
		e.gathered = make([]byte, e.cfg.EagerLimit)
	}
	e.gatheredOf = nil
	n, ok := gather(e.gathered, parts)
	return e.gathered[:n], ok
}

// whole is memory for a message that was gathered.
type whole struct {
	buf   []byte // its length is a power of two
	class int    // which
}

// wholes are those that nobody uses, by class. They stay as long as they are used between two
// collections of garbage: a message in memory that is fresh takes twice its time.
var wholes [bits.UintSize]sync.Pool

// newWhole has all parts. It fails where no memory can be that large.
func newWhole(parts [][]byte, size int) (*whole, error) {
	if int64(size) > longestSlice {
		return nil, fmt.Errorf("%w: the parts of a message have %d bytes together", ErrInvalid, size)
	}
	class := bits.Len(uint(max(size, 1) - 1))
	w, ok := wholes[class].Get().(*whole)
	if !ok {
		w = &whole{make([]byte, 1<<class), class}
	}
	gather(w.buf, parts)
	return w, nil
}

func (w *whole) drop() { wholes[w.class].Put(w) }
