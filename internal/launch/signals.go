package launch

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// forwarded are the signals to this process that are meant for the ranks, which the terminal does
// not reach: they are not in its process group.
var forwarded = []os.Signal{
	syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGXCPU, syscall.SIGTSTP, syscall.SIGCONT,
}

// notify has c get the signals that end a job, and those for its ranks.
func notify(c chan<- os.Signal) {
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	signal.Notify(c, forwarded...)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup, and so for the ranks
		signal.Notify(c, syscall.SIGHUP)
	}
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
	default:
		s.forward(sig)
	}
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
	s.end(syscall.SIGTERM)
}
