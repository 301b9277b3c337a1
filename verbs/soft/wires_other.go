//go:build !linux

package soft

import (
	"errors"
	"fmt"
	"runtime"
)

func newSHMWire(wireEnv) (wire, error) { return nil, unsupportedWire(WireSHM) }

func newTCPWire(wireEnv) (wire, error) { return nil, unsupportedWire(WireTCP) }

func unsupportedWire(name string) error {
	return fmt.Errorf("the %s wire needs Linux, this is %s: %w", name, runtime.GOOS, errors.ErrUnsupported)
}
