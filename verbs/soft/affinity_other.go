//go:build !linux

package soft

import (
	"errors"
	"fmt"
)

// bind fails: thread affinity is supported on Linux only.
func bind([]int) error {
	return fmt.Errorf("choosing processors needs Linux: %w", errors.ErrUnsupported)
}
