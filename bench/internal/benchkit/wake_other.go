//go:build !linux

package benchkit

import (
	"errors"
	"time"
)

func now() (time.Duration, error) { return 0, errors.ErrUnsupported }

func newPage() (*page, string, error) { return nil, "", errors.ErrUnsupported }

func openPage(string) (*page, error) { return nil, errors.ErrUnsupported }

func (*page) await(uint32) error { return errors.ErrUnsupported }

func (*page) wake(uint32) error { return errors.ErrUnsupported }
