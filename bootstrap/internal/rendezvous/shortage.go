package rendezvous

import (
	"errors"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/door"
)

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
	if time.Since(h.deafAt) > 20*door.AcceptAgain {
		return ""
	}
	return h.deaf
}
