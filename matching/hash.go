package matching

import "math/bits"

// hasher is a seeded multiply-and-fold hash of one 64-bit key. Both halves of
// the 128-bit product are folded, so that keys which differ only in high bits
// and keys which differ only in low bits spread alike. The secret offset and
// the secret multiplier keep a peer from choosing tags that share a bucket.
type hasher struct {
	offset uint64
	mul    uint64
}

// newHasher stretches the seed, so that small or related seeds do as well.
func newHasher(seed uint64) hasher {
	const step = 0x9e3779b97f4a7c15 // splitmix64's
	return hasher{
		offset: mix(seed + step),
		mul:    mix(mix(seed)+step) | 1, // odd: no key bit is lost
	}
}

func (h *hasher) sum(key uint64) uint64 {
	hi, lo := bits.Mul64(key^h.offset, h.mul)
	return hi ^ lo
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
