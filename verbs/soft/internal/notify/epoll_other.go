//go:build !linux

package notify

import "errors"

// NewEpoll fails: the wires that need it exist on Linux only.
func NewEpoll() (*Chan, error) { return nil, errors.ErrUnsupported }
