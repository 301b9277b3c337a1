//go:build !linux

package launch

import (
	"errors"
	"fmt"
)

func allowedCPUs() ([]int, error) { return nil, errors.ErrUnsupported }

// PinSelf is for Linux; elsewhere nothing sets TAGMATCH_PIN.
func PinSelf() ([]int, error) {
	return nil, fmt.Errorf("launch: pinning: %w", errors.ErrUnsupported)
}
