//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Open fails: the wire exists on Linux only.
func Open(wire.Env, Config) (wire.Wire, error) {
	return nil, fmt.Errorf("the shm wire needs Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
