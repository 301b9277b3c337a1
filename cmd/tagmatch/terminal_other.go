//go:build !linux

package main

import (
	"errors"
	"os"
)

// Jobs can be looked into on Linux alone: top has no terminal elsewhere.
func isTerminal(*os.File) bool                       { return false }
func single(*os.File) (func() error, error)          { return nil, errors.ErrUnsupported }
func sizeOf(*os.File) (width, height int, err error) { return 0, 0, errors.ErrUnsupported }
