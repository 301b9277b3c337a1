package launch

import (
	"context"
	"syscall"
	"time"
)

const (
	// insistTime is how long a second SIGQUIT counts as one that is for the ranks.
	insistTime = 5 * time.Second

	// hangTime is for how long nothing may have moved in a job that a signal ends before it counts
	// as one that hangs.
	hangTime = 10 * time.Second
)

// look is what a supervisor knows of a job by Options.Diagnose.
type look struct {
	quit  time.Time // when the last SIGQUIT was answered with a diagnosis; zero: none was
	found chan string
	stop  context.CancelFunc // of the look that found is for; nil: there is none
	sig   syscall.Signal     // that ends the job after the look
	last  string             // what is said when all ranks have ended
}

// diagnosed answers a SIGQUIT with what is wrong with the job, and reports whether it has: who
// insists means the ranks.
func (s *supervisor) diagnosed() bool {
	if s.opt.Diagnose == nil || !s.look.quit.IsZero() && time.Since(s.look.quit) < insistTime {
		return false
	}
	s.look.quit = time.Now()
	pids := s.pids()
	s.sayFound(func() string { return s.opt.Diagnose(context.Background(), pids, 0) }, nil)
	return true
}

// lookFirst looks at ranks that a signal is to end, and reports whether it does: the end has to
// wait for that.
func (s *supervisor) lookFirst(sig syscall.Signal) bool {
	pids := s.pids()
	if s.opt.Diagnose == nil || s.ending || s.failed != nil || len(pids) == 0 {
		return false
	}
	ctx, stop := context.WithCancel(context.Background())
	found := make(chan string, 1)
	s.look.found, s.look.stop, s.look.sig = found, stop, sig
	s.wg.Go(func() { found <- s.opt.Diagnose(ctx, pids, hangTime) })
	return true
}

// hasLooked ends the ranks after the look. They may be ending for another reason by now.
func (s *supervisor) hasLooked(text string) {
	s.endLook()
	if !s.ending {
		s.look.last = text
		s.endBy(s.look.sig)
	}
}

func (s *supervisor) endLook() {
	if s.look.stop != nil {
		s.look.stop()
		s.look.stop, s.look.found = nil, nil
	}
}

// sayLast says what was wrong with a job that has ended.
func (s *supervisor) sayLast() {
	if s.look.last != "" {
		s.say(s.look.last, nil)
	}
}

// pids are the first processes of the ranks that run on this host.
func (s *supervisor) pids() (list []int) {
	for _, r := range s.ranks {
		if r.running && r.agent == nil {
			list = append(list, r.cmd.Process.Pid)
		}
	}
	return list
}
