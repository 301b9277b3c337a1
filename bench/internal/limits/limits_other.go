//go:build !linux

package limits

import (
	"context"
	"errors"
)

// Measure needs Linux.
func Measure(context.Context, string, []string, string, int, [2]int, func(Line) error) error {
	return errors.ErrUnsupported
}

// Serve needs Linux.
func Serve([]string) error { return errors.ErrUnsupported }
