//go:build !linux

package launch

import (
	"errors"
	"fmt"
)

// PinSelf is implemented on Linux; elsewhere nothing sets TAGMATCH_PIN.
func PinSelf() ([]int, error) {
	return nil, fmt.Errorf("launch: pinning: %w", errors.ErrUnsupported)
}

// PinOthers is implemented on Linux; elsewhere no CPUs are known to be given to it.
func PinOthers([]int) error { return fmt.Errorf("launch: pinning: %w", errors.ErrUnsupported) }

func bindThread(int) (unbind func(), err error) { return nil, errors.ErrUnsupported }
