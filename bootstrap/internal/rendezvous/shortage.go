package rendezvous

import (
	"errors"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/door"
)

// acceptAgain is how long rank 0 waits after a failure to accept, which may pass.
const acceptAgain = door.AcceptAgain

// Remedy says what to do about err, which a rank has met, where that is a lack of file descriptors.
// It is empty for all other errors.
func Remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return ": raise its limit of open files (ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return ": its host has no file descriptor left: end programs there, or raise the host's limit (sysctl fs.file-max)"
	}
	return ""
}

// shortage is a lack of descriptors at rank 0 while it accepts.
type shortage struct {
	since  time.Time // zero: there is none
	last   time.Time // when an accept has failed last
	visits int64     // of the store, then
}

// lasts takes the error of an accept that fails now, and reports whether the ranks that are missing
// will not get in: for long none of the process's descriptors has come free, and each connection
// that rank 0 holds is of a rank that has joined, and stays. A shortage of the host may pass with
// other programs.
func (l *shortage) lasts(s *store, err error, now time.Time) bool {
	visits := s.visits.Load()
	if visits != l.visits || now.Sub(l.last) > 10*acceptAgain { // there was one, for a rank or to wait for one
		l.since = time.Time{}
	}
	l.visits, l.last = visits, now
	if !errors.Is(err, syscall.EMFILE) || s.joining.Load() > 0 || s.hub.started() {
		l.since = time.Time{}
		return false
	}
	if l.since.IsZero() {
		l.since = now
	}
	return now.Sub(l.since) >= s.cfg.shortFor
}

// accepts records the outcome of an accept, for the error of ranks that wait in vain.
func (h *hub) accepts(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf = ""
	if err != nil {
		h.deaf, h.deafAt = err.Error()+Remedy(err), time.Now()
	}
}

// deafLocked is why rank 0 can accept no connections, "" where it can, or has waited for some.
func (h *hub) deafLocked() string {
	if time.Since(h.deafAt) > 20*acceptAgain {
		return ""
	}
	return h.deaf
}
