//go:build !linux

package benchkit

import (
	"errors"
	"fmt"
)

var errNoProc = fmt.Errorf("memory is measured by /proc, which is Linux's: %w", errors.ErrUnsupported)

// Resident needs Linux.
func Resident() (now, peak int64, err error) { return 0, 0, errNoProc }

func available() (int64, error) { return 0, errNoProc }
