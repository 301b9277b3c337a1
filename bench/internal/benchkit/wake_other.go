//go:build !linux

package benchkit

import (
	"errors"
	"time"
)

// Limits needs Linux.
type Limits struct{ Common }

// NewLimits has no defaults.
func NewLimits() *Limits { return &Limits{Common{Sizes: Sizes{8}}} }

// Run fails.
func (*Limits) Run(*Session, int, int) error { return errors.ErrUnsupported }

func now() (time.Duration, error) { return 0, errors.ErrUnsupported }

func newPage() (*page, string, error) { return nil, "", errors.ErrUnsupported }

func openPage(string) (*page, error) { return nil, errors.ErrUnsupported }

func (*page) await(uint32) error { return errors.ErrUnsupported }

func (*page) wake(uint32) error { return errors.ErrUnsupported }
