//go:build !linux

package soft

import (
	"errors"
	"fmt"
)

func bind([]int) error {
	return fmt.Errorf("choosing processors needs Linux: %w", errors.ErrUnsupported)
}
