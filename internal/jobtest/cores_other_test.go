//go:build !linux

package jobtest

import "errors"

func stayOn(int) error { return errors.ErrUnsupported }
