package kernel

import "math"

func sumBF16(dst, a, b []uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = toBF16(fromBF16(a[i]) + fromBF16(b[i]))
	}
}

func sumF16(dst, a, b []uint16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = toF16(fromF16(a[i]) + fromF16(b[i]))
	}
}

// fromBF16: a bfloat16 is the upper half of a float32.
func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBF16 rounds to nearest even: the lower half carries where it is more than one half, or one half
// and the upper half odd. The carry into the exponent makes Inf of what is too large.
func toBF16(f float32) uint16 {
	if f != f {
		return 0x7fc0
	}
	u := math.Float32bits(f)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// fromF16: a float32 with the bits of the half in the places of a float32's is 2^112 times too
// small, whether the half is normal or not.
func fromF16(h uint16) float32 {
	sign, rest := uint32(h&0x8000)<<16, uint32(h&0x7fff)<<13
	if h&0x7c00 == 0x7c00 { // Inf or NaN
		return math.Float32frombits(sign | 0x7f800000 | rest)
	}
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest)*0x1p112))
}

// toF16 rounds to nearest even.
func toF16(f float32) uint16 {
	u := math.Float32bits(f)
	sign, rest := uint16(u>>16&0x8000), u&0x7fffffff
	abs := math.Float32frombits(rest)
	switch {
	case f != f:
		return 0x7e00
	case abs >= 65520: // half way from the largest to the next power of two
		return sign | 0x7c00
	case abs < 0x1p-14:
		// Not normal: beside one half a float32 has the precision of such a half.
		return sign | uint16(math.Float32bits(abs+0.5)-math.Float32bits(0.5))
	}
	odd := rest >> 13 & 1
	return sign | uint16((rest+0xfff+odd-112<<23)>>13)
}
