//go:build !arm64

package mem

import (
	"runtime"
	"sync/atomic"
)

var barrier atomic.Uint32

// LoadBarrier has all loads before it done before those behind it, which amd64 does by itself.
func LoadBarrier() {
	if runtime.GOARCH != "amd64" {
		barrier.Add(1)
	}
}
