package kernel

import (
	"golang.org/x/sys/cpu"
)

//go:generate env GOWORK=off go run -C gen .

func assembly() []variant {
	vs := []variant{{"sse2", sse2}}
	if cpu.X86.HasAVX2 { // and with it F16C, which came before it
		vs = append(vs, variant{"avx2", avx2})
	}
	// The last of these came with Ice Lake. Processors before it lower their clock for AVX-512.
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI2 {
		vs = append(vs, variant{"avx512", avx512})
	}
	return vs
}

func sse2(t *table) {
	t.sums(sumInt8SSE2, sumInt16SSE2, sumInt32SSE2, sumInt64SSE2, sumFloat32SSE2, sumFloat64SSE2)
	t.bounds(minFloat32SSE2, maxFloat32SSE2, minFloat64SSE2, maxFloat64SSE2)
}

func avx2(t *table) {
	t.sums(sumInt8AVX2, sumInt16AVX2, sumInt32AVX2, sumInt64AVX2, sumFloat32AVX2, sumFloat64AVX2)
	t.bounds(minFloat32AVX2, maxFloat32AVX2, minFloat64AVX2, maxFloat64AVX2)
	t.halves(sumBF16AVX2, sumF16AVX2)
}

func avx512(t *table) {
	t.sums(sumInt8AVX512, sumInt16AVX512, sumInt32AVX512, sumInt64AVX512, sumFloat32AVX512, sumFloat64AVX512)
	t.bounds(minFloat32AVX512, maxFloat32AVX512, minFloat64AVX512, maxFloat64AVX512)
	t.halves(sumBF16AVX512, sumF16AVX512)
}
