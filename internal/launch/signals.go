package launch

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals to this process that are meant for the ranks, which the terminal does
// not reach: they are not in its process group.
var forwarded = []os.Signal{syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGXCPU, syscall.SIGCONT}

// notify has endings get the signals that end a job, and others those for its ranks.
func notify(endings, others chan<- os.Signal) {
	signal.Notify(endings, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup, and so for the ranks
		signal.Notify(endings, syscall.SIGHUP)
	}
	signal.Notify(others, forwarded...)
	if continued() {
		signal.Notify(others, syscall.SIGTSTP)
	}
}

// continued reports whether somebody can continue this process once it is stopped: its parent in
// the same session, as a shell with job control is. The first process of a container cannot be.
func continued() bool {
	its, err := unix.Getsid(os.Getppid())
	mine, err2 := unix.Getsid(0)
	return errors.Join(err, err2) == nil && its == mine && os.Getpid() != 1
}

// signalled handles a signal to this process.
func (s *supervisor) signalled(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM:
		s.interrupted(sig)
	case syscall.SIGHUP:
		if s.signals == 0 { // a terminal that is closed sends it more than once
			s.interrupted(sig)
		}
	case syscall.SIGTSTP:
		s.forward(syscall.SIGSTOP) // SIGTSTP stops no group whose session has no shell, as on other hosts
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case syscall.SIGQUIT:
		if !s.diagnosed() {
			s.dumped = time.Now()
			s.forward(sig)
		}
	default:
		s.forward(sig)
	}
}

// settleFor is how long other ranks run on after one has failed. Behind SIGQUIT, by which programs
// end with the stacks of their goroutines, they have the grace period for it.
func (s *supervisor) settleFor() time.Duration {
	if s.dumped.IsZero() {
		return settleTime
	}
	return max(settleTime, s.opt.Grace-time.Since(s.dumped))
}

func (s *supervisor) forward(sig syscall.Signal) {
	for _, r := range s.ranks {
		if r.running {
			r.signal(sig)
		}
	}
}

// interrupted ends the ranks because of a signal. A second one does not wait, or hardly for whoever
// reads the output.
func (s *supervisor) interrupted(sig syscall.Signal) {
	if s.signals++; s.signals == 2 {
		s.giveUp = time.After(lastWords)
	}
	if s.signals > 1 || !s.lookFirst(sig) {
		s.endLook()
		s.endBy(sig)
	}
}

// endBy ends the ranks because of the signals that have come.
func (s *supervisor) endBy(sig syscall.Signal) {
	if s.failed != nil && s.asked == nil {
		s.settled() // the verdict must not be about ranks that the signal ends
		return
	}
	if s.ending {
		if s.signals > 1 || !s.hurry() {
			s.end(syscall.SIGKILL)
		}
		return
	}
	s.note(128+int(sig), "got "+sig.String(), nil)
	if s.signals > 1 { // the first look at the ranks was not over
		s.end(syscall.SIGKILL)
		return
	}
	s.end(syscall.SIGTERM)
}
