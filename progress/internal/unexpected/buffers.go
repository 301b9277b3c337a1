package unexpected

import "math/bits"

// Buffers come in classes four to a power of two, so that at most a fifth of one is waste.
const (
	minBuffer  = 64
	numClasses = 4 * 24
)

// buffers keeps the memory of eager messages for the next ones. What it keeps and what is in use
// together stay within the limit of what may be in use, so that messages of another size than those
// before do not take memory twice.
type buffers struct {
	classes [numClasses][][]byte // free, by class
	kept    int64                // bytes in classes
	keep    int64                // most bytes in classes
	used    int64                // bytes in messages
	limit   int64                // of bytes, free and in messages
}

func (b *buffers) init(limit int64) {
	b.limit = limit
	b.keep = limit / 4
}

// class returns the class of the buffers for n bytes and their size.
func class(n int) (c, size int) {
	if n <= minBuffer {
		return 0, minBuffer * min(n, 1)
	}
	shift := bits.Len(uint(n-1)) - 3 // leaves three bits, the first set: 4 to 7
	quarter := (n - 1) >> shift
	if c, size = (shift-4)*4+quarter-3, (quarter+1)<<shift; size == 3584 || size == 7168 {
		return c + 1, size + size/7 // Go's allocator has nothing between
	}
	return c, size
}

func (b *buffers) get(n int) []byte {
	if n == 0 {
		return nil
	}
	c, size := class(n)
	b.used += int64(size)
	if c >= numClasses {
		return make([]byte, n, size)
	}
	if k := len(b.classes[c]); k != 0 {
		buf := b.classes[c][k-1]
		b.classes[c][k-1] = nil
		b.classes[c] = b.classes[c][:k-1]
		b.kept -= int64(size)
		checkPoisoned(buf)
		return buf[:n]
	}
	if b.kept > 0 && b.used+b.kept > b.limit {
		for i, c := range b.classes {
			clear(c)
			b.classes[i] = c[:0] // its array is for those to come
		}
		b.kept = 0
	}
	return make([]byte, n, size)
}

func (b *buffers) put(buf []byte) {
	poisonBuffer(buf)
	b.used -= int64(cap(buf))
	if cap(buf) == 0 || b.kept+int64(cap(buf)) > b.keep {
		return
	}
	c, size := class(cap(buf))
	if c >= numClasses || size != cap(buf) {
		return
	}
	b.classes[c] = append(b.classes[c], buf[:0])
	b.kept += int64(size)
}
