//go:build !linux

package jobtest

import "errors"

func stayOnOneCore() error { return errors.ErrUnsupported }
