//go:build !linux

package faults

import (
	"errors"
	"fmt"
)

func supported() error {
	return fmt.Errorf("what is left of a job is looked for in /proc, which is Linux's: %w", errors.ErrUnsupported)
}

func abstractSockets() ([]string, error) { return nil, supported() }

func left([]string) ([]string, error) { return nil, supported() }
