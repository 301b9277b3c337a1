package benchkit

import "fmt"

// warmUp is how many of iters precede the timing.
func warmUp(iters int) int { return min(iters/10+1, 1000) }

// Messages is the number of messages of a size that takes some tenths of a second.
func Messages(size int, device string) int {
	n := 200_000
	switch {
	case size > 256<<10:
		n = max(2<<30/size, 20)
	case size > 8<<10:
		n = 10_000
	case size > 1<<10:
		n = 50_000
	}
	if device != "shm" {
		n = max(n/10, 20)
	}
	return n
}

func (s *Session) messages(size int) int {
	n := Messages(size, s.device())
	if s.Check {
		n = max(n/20, 10)
	}
	return n
}

// wrap adds the size to an error.
func wrap(size int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("size %s: %w", sizeName(size), err)
}
