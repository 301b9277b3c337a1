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
