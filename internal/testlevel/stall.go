package testlevel

import "time"

// Stall finds out that work has stopped. How long all of it may take is not for a test to say: a
// busy machine is a hundred times slower than a free one.
type Stall struct {
	progress int
	since    time.Time
}

// Lasts reports whether progress, a number that changes with the work, has been the same for the
// time limit.
func (s *Stall) Lasts(limit time.Duration, progress int) bool {
	if progress != s.progress || s.since.IsZero() {
		s.progress, s.since = progress, time.Now()
	}
	return time.Since(s.since) >= limit
}
