//go:build !linux

package hop

import (
	"errors"
	"fmt"
	"time"
)

// Processors lists those that this process may use.
func Processors() ([]int, error) {
	return nil, fmt.Errorf("what is compared is pinned to processors, which needs Linux: %w", errors.ErrUnsupported)
}

// Probe needs Linux.
func Probe([2]int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// Pin needs Linux.
func Pin(int) error { return errors.ErrUnsupported }
