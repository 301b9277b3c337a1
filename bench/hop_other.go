//go:build !linux

package main

import (
	"errors"
	"fmt"
	"time"
)

func processors() ([]int, error) {
	return nil, fmt.Errorf("compare pins what it measures, which needs Linux: %w", errors.ErrUnsupported)
}

func probeHop([2]int) (time.Duration, error) { return 0, errors.ErrUnsupported }
