//go:build !linux

package cpus

import "errors"

// Allowed needs Linux.
func Allowed() ([]int, error) { return nil, errors.ErrUnsupported }

// Bind needs Linux.
func Bind(int, ...int) error { return errors.ErrUnsupported }
