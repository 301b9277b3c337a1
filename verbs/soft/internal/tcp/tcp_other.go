//go:build !linux

package tcp

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Open fails: the wire exists on Linux only.
func Open(wire.Env, string, ports.Range) (wire.Wire, error) {
	return nil, fmt.Errorf("the tcp wire needs Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
