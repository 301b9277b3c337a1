//go:build !linux

package soft

import "errors"

// newNotifier is for wires with descriptors, of which there are none here; the loop wire has a
// notifier of its own.
func newNotifier() (*chanNotifier, error) { return nil, errors.ErrUnsupported }
