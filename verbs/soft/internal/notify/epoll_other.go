//go:build !linux

package notify

import "errors"

// NewEpoll is for wires with descriptors, of which there are none here; the loop wire has a
// notifier of its own.
func NewEpoll() (*Chan, error) { return nil, errors.ErrUnsupported }
