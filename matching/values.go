package matching

// values holds what the entries carry, beside the slab: only these are of the
// caller's type, so only these are scanned by the garbage collector.
type values[T any] []*[chunkSize]T

func (vs *values[T]) set(i uint32, v T) {
	c := int(i >> chunkBits)
	if c >= len(*vs) || (*vs)[c] == nil {
		vs.grow(c)
	}
	(*vs)[c][i&chunkMask] = v
}

func (vs *values[T]) grow(c int) {
	for c >= len(*vs) {
		*vs = append(*vs, nil)
	}
	(*vs)[c] = new([chunkSize]T)
}

func (vs values[T]) get(i uint32) T { return vs[i>>chunkBits][i&chunkMask] }

// take returns a value and clears it, so that the queue does not keep it alive.
func (vs values[T]) take(i uint32) (v T) {
	p := &vs[i>>chunkBits][i&chunkMask]
	v, *p = *p, v
	return v
}

// loneIndex is the entry that a lone element gets when it settles. It is reserved for that: while a
// queue is empty, this entry is free.
const loneIndex = 1

// lone is the element of a queue that was empty when it was added. It stays outside of slab and
// table until a second one is added, or a caller needs the order: a receive that is posted, matched
// and followed by the next, the usual case, then costs a few stores. While on is set, the queue has
// no other entry.
type lone[T any] struct {
	on    bool
	tag   uint64
	mask  uint64
	stamp Stamp
	v     T
}

// put stores field by field: a composite literal would be built on the stack
// and copied in wider words, which stalls store forwarding (twice the time).
func (l *lone[T]) put(tag, mask uint64, stamp Stamp, v T) {
	l.on, l.tag, l.mask, l.stamp, l.v = true, tag, mask, stamp, v
}

func (l *lone[T]) handle() Handle { return makeHandle(loneIndex, l.stamp) }

// take returns the value and clears it.
func (l *lone[T]) take() (v T) {
	l.on = false
	v, l.v = l.v, v
	return v
}
