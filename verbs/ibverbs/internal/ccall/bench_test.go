//go:build linux && (amd64 || arm64)

package ccall

import (
	"testing"

	"github.com/ebitengine/purego"
)

// BenchmarkCall is a crossing: a call of a function that does next to nothing.
func BenchmarkCall(b *testing.B) {
	abs := libc(b, "abs")
	b.Run("Do", func(b *testing.B) {
		b.ReportAllocs()
		c := &Call{Fn: abs, Args: [6]uintptr{1, 2, 3}}
		for b.Loop() {
			c.Do()
		}
	})
	b.Run("DoErrno", func(b *testing.B) {
		b.ReportAllocs()
		c := &Call{Fn: abs, Args: [6]uintptr{1, 2, 3}}
		for b.Loop() {
			_ = c.DoErrno()
		}
	})
	b.Run("SyscallN", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			purego.SyscallN(abs, 1, 2, 3)
		}
	})
}

// BenchmarkEight is eight calls: in one crossing, and in eight.
func BenchmarkEight(b *testing.B) {
	abs := libc(b, "abs")
	b.Run("Run", func(b *testing.B) {
		b.ReportAllocs()
		var steps [8]Step
		for i := range steps {
			steps[i] = Step{Addr: abs, Args: [3]uintptr{1, 2, 3}}
		}
		for b.Loop() {
			Run(steps[:], nil)
		}
	})
	b.Run("Do", func(b *testing.B) {
		b.ReportAllocs()
		c := &Call{Fn: abs, Args: [6]uintptr{1, 2, 3}}
		for b.Loop() {
			for range 8 {
				c.Do()
			}
		}
	})
	b.Run("SyscallN", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range 8 {
				purego.SyscallN(abs, 1, 2, 3)
			}
		}
	})
}
