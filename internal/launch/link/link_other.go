//go:build !linux

package link

import (
	"errors"
	"os"
)

func duplicate(int, uint64) *os.File { return nil }

// Pair is implemented on Linux.
func Pair(int) (parent, child *os.File, env string, err error) {
	return nil, nil, "", errors.ErrUnsupported
}
