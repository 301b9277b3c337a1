package kernel

// assembly: every arm64 has NEON.
func assembly() []variant { return []variant{{"neon", neon}} }

func neon(t *table) {
	t.sums(sumInt8NEON, sumInt16NEON, sumInt32NEON, sumInt64NEON, sumFloat32NEON, sumFloat64NEON)
	t.bounds(minFloat32NEON, maxFloat32NEON, minFloat64NEON, maxFloat64NEON)
	t.halves(sumBF16NEON, sumF16NEON)
}

//go:noescape
func sumInt8NEON(dst, a, b []byte)

//go:noescape
func sumInt16NEON(dst, a, b []byte)

//go:noescape
func sumInt32NEON(dst, a, b []byte)

//go:noescape
func sumInt64NEON(dst, a, b []byte)

//go:noescape
func sumFloat32NEON(dst, a, b []byte)

//go:noescape
func sumFloat64NEON(dst, a, b []byte)

//go:noescape
func minFloat32NEON(dst, a, b []byte)

//go:noescape
func minFloat64NEON(dst, a, b []byte)

//go:noescape
func maxFloat32NEON(dst, a, b []byte)

//go:noescape
func maxFloat64NEON(dst, a, b []byte)

//go:noescape
func sumBF16NEON(dst, a, b []byte)

//go:noescape
func sumF16NEON(dst, a, b []byte)
