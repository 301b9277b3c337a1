package launch

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// abortCourtesy is how long ranks have to end by themselves after an Abort, which all of them learn
// of.
const abortCourtesy = time.Second

// lastWords is how long the launcher reads the link and the output of a rank that has ended, once
// it has read what was in there. It matters only where descendants keep them open; a host that
// stalls for a moment must not lose the reason of an Abort.
const lastWords = time.Second

// deathTime is how long processes that were killed have to close their descriptors, before others
// are looked for which hold them too.
const deathTime = 100 * time.Millisecond

// lastWrite is how long output that was given up may take to stop: a writer that is not blocked has
// ended by then.
const lastWrite = 100 * time.Millisecond

// watch reports the events of one rank.
func (j *job) watch(r *rank) {
	aborts := make(chan struct{})
	go func() {
		defer close(aborts)
		if r.link != nil {
			link.Read(r.link, link.Reader{
				Abort: func(code int, reason string) {
					j.report(event{rank: r.n, kind: rankAbort, code: code, reason: reason})
				},
				Say:  func(s link.State) { j.report(event{rank: r.n, kind: rankSaid, state: s}) },
				Lost: func(peer int) { j.report(event{rank: r.n, kind: rankLost, peer: peer}) },
			})
		}
	}()
	j.awaitEnd(r)
	r.killDescendants(aborts, &j.holders)
	if r.link != nil {
		// A descendant may keep the link open.
		if err := r.link.SetReadDeadline(time.Now().Add(lastWords)); err != nil {
			_ = r.link.Close()
		}
	}
	<-aborts
	if r.link != nil {
		_ = r.link.Close()
	}
	end := exitEvent(r.reap())
	end.rank = r.n
	j.report(end)
	// The others are not left running until somebody reads what this rank has written.
	passed := event{rank: r.n, kind: rankPassed}
	if err := j.awaitOutput(r); err != nil {
		passed.reason = err.Error()
	}
	close(r.passed)
	j.report(passed)
}

// killDescendants ends what a rank that has ended has left running: its process group, and whoever
// else holds its link, as a group that a shell or timeout(1) has made. closed tells that nobody
// does.
func (r *rank) killDescendants(closed <-chan struct{}, holders *holders) {
	r.signal(syscall.SIGKILL)
	select {
	case <-closed:
	case <-time.After(deathTime):
		holders.kill(r.socket)
	}
}

// holders ends whoever holds the links of ranks that have ended. Ranks that end together share a
// look at all processes of the host.
type holders struct {
	look    func(sockets map[string]bool)
	looking sync.Mutex // held meanwhile

	mu     sync.Mutex
	wanted map[string]bool // sockets that no look has been for yet; guarded by mu
}

func (h *holders) kill(socket string) {
	h.mu.Lock()
	if h.wanted == nil {
		h.wanted = map[string]bool{}
	}
	h.wanted[socket] = true
	h.mu.Unlock()
	h.looking.Lock()
	defer h.looking.Unlock()
	h.mu.Lock()
	sockets := h.wanted
	if !sockets[socket] { // another rank's look was for this one too
		h.mu.Unlock()
		return
	}
	h.wanted = nil
	h.mu.Unlock()
	h.look(sockets)
}

// signal sends sig to all of a rank's processes. Once it is reaped their group's number may be that
// of another. What is not to end a rank on another host is sent by the shell there.
func (r *rank) signal(sig syscall.Signal) {
	r.reaping.Lock()
	defer r.reaping.Unlock()
	switch {
	case r.reaped:
	case r.agent == nil || sig == syscall.SIGTERM || sig == syscall.SIGKILL:
		signalGroup(r.cmd.Process, sig)
	default:
		r.agent.signal(sig)
	}
}

// end has a rank end that has not yet: what becomes of it then says nothing.
func (r *rank) end(sig syscall.Signal) {
	r.told = r.told || r.order == 0
	r.leaving = false
	r.signal(sig)
}

// reap returns the state of a rank's process that has ended.
func (r *rank) reap() *os.ProcessState {
	r.reaping.Lock()
	r.reaped = true // before Wait, which may take long: a tracer of the process has to let it go first
	r.reaping.Unlock()
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Wait() // says with which code it ended
	}
	if r.agent != nil {
		r.agent.close()
	}
	return r.cmd.ProcessState
}

// awaitEnd waits for the end of a rank's process, and leaves it unreaped where the system can.
func (j *job) awaitEnd(r *rank) {
	switch {
	case r.queued != nil:
		<-r.queued
	case awaitExit(r.cmd.Process.Pid):
		j.report(event{rank: r.n, kind: rankEnded})
	default:
		_ = r.cmd.Wait() // says with which code it ended
	}
}

// awaitOutput waits until the output of a rank that has ended is passed on, or given up.
func (j *job) awaitOutput(r *rank) (lost error) {
	streams := []*stream{r.out, r.err}
	for _, s := range streams {
		s.rankEnded()
	}
	for _, s := range streams {
		select {
		case err := <-s.done:
			if lost == nil {
				lost = err
			}
		case <-j.givenUp:
			_ = s.pipe.Close() // run ends when its last write does
			select {
			case <-s.done:
			case <-time.After(lastWrite):
			}
		}
	}
	return lost
}

func (j *job) report(e event) {
	select {
	case j.events <- e:
	case <-j.quit:
	}
}

// exitEvent is the rankGone of a process.
func exitEvent(st *os.ProcessState) event {
	e := event{kind: rankGone, code: st.ExitCode()}
	switch ws, ok := st.Sys().(syscall.WaitStatus); {
	case ok && ws.Signaled():
		e.killed, e.code = true, 128+int(ws.Signal())
		e.reason = "was killed by a signal: " + ws.Signal().String()
	case e.code != 0:
		e.reason = fmt.Sprintf("exited with code %d", e.code)
	}
	return e
}

// leaveTime is how long ranks that have closed their World have to end by themselves when another
// rank has failed, maybe because of that: why they closed it is what the user must hear. It is
// never more than half of the grace period, of which the rest is theirs behind SIGTERM. The Close
// of rank 0 waits two seconds for the others.
const leaveTime = 3 * time.Second

// supervisor is the state of a job's end.
type supervisor struct {
	*job
	left     int // ranks that are not gone
	unpassed int // ranks whose output is not all passed on
	code     int
	kept     endings
	err      error
	ending   bool
	ended    int     // ranks whose processes have ended
	failed   *rank   // the first that failed, until the blame is settled
	asked    []*rank // ranks that had ended when settle fired
	settle   *time.Timer
	leave    *time.Timer
	next     syscall.Signal // sent when timer fires
	timer    *time.Timer

	said    chan struct{}    // closed when the first failure is printed; nil: nothing is
	dumped  time.Time        // when the last SIGQUIT came; zero: none has
	signals int              // to this process
	giveUp  <-chan time.Time // when output is no longer waited for; nil: never
	gaveUp  bool
	look    look
}

func newSupervisor(j *job) *supervisor {
	s := &supervisor{job: j, timer: time.NewTimer(time.Hour), settle: time.NewTimer(time.Hour), leave: time.NewTimer(time.Hour)}
	s.stopTimers()
	return s
}

func (s *supervisor) stopTimers() {
	for _, t := range []*time.Timer{s.timer, s.settle, s.leave} {
		t.Stop()
	}
}

func (j *job) run(ctx context.Context) (int, error) {
	endings, others := make(chan os.Signal, 4), make(chan os.Signal, 16)
	notify(endings, others)
	defer signal.Stop(endings)
	defer signal.Stop(others)
	s := newSupervisor(j)
	defer s.stopTimers()
	if err := j.start(); err != nil {
		s.err, s.code = err, 1
		s.end(syscall.SIGKILL)
	}
	s.left, s.unpassed = len(j.ranks), len(j.ranks)
	over := ctx.Done()
	for s.unpassed > 0 || s.said != nil && !s.gaveUp {
		select {
		case e := <-j.events:
			s.happened(e)
		case sig := <-endings:
			s.signalled(sig.(syscall.Signal))
		case sig := <-others:
			s.signalled(sig.(syscall.Signal))
		case <-over:
			over = nil
			s.cancelled(ctx.Err())
		case <-s.settle.C:
			s.settled()
		case <-s.leave.C:
			s.hurry()
		case <-s.timer.C:
			s.end(s.next)
		case text := <-s.look.found:
			s.hasLooked(text)
		case <-s.said:
			s.said = nil
		case <-s.giveUp:
			close(j.givenUp)
			s.gaveUp = true
		}
	}
	s.endLook() // all ranks have ended meanwhile
	close(j.quit)
	j.wg.Wait()
	return s.code, s.err
}

func (s *supervisor) happened(e event) {
	r := s.ranks[e.rank]
	switch e.kind {
	case rankSaid:
		r.state = e.state
	case rankLost:
		if r.state < link.Closed { // later states follow from its own end
			r.lost = append(r.lost, e.peer)
		}
	case rankEnded:
		s.ended++
		r.order = s.ended
	case rankAbort:
		if !r.told { // else it may be for the launcher's own signal
			s.aborted(e)
		}
	case rankGone:
		r.running, r.code, r.killed, r.reason = false, e.code, e.killed, e.reason
		s.left--
		if r.order == 0 {
			s.ended++
			r.order = s.ended
		}
		s.gone(r)
	case rankPassed:
		s.unpassed--
		if e.reason != "" {
			s.outputLost(r, e.reason)
		}
		if s.unpassed == 0 {
			s.conclude()
			s.sayLast()
		}
	}
}

// aborted handles an Abort. It is the cause of a failure that is not settled yet: the reaction of
// another rank may be reported first.
func (s *supervisor) aborted(e event) {
	s.settle.Stop()
	s.failed, s.asked = nil, nil
	code := e.code
	if code == 0 {
		code = 1 // an aborted job did not succeed
	}
	text := fmt.Sprintf("%s aborted the job with code %d: %s", s.ranks[e.rank].name(), e.code, e.reason)
	if s.note(code, text, nil) && !s.ending {
		s.next = syscall.SIGTERM
		s.timer.Reset(abortCourtesy)
	}
}

// note records and prints the first failure. If it is that of a rank r, which has ended, it is
// printed behind r's output.
func (s *supervisor) note(code int, text string, r *rank) (first bool) {
	if s.code != 0 || s.failed != nil {
		return false
	}
	s.code = code
	s.say(text, r)
	return true
}

// cancelled ends the job because its context has ended.
func (s *supervisor) cancelled(err error) {
	s.err = err
	if s.failed != nil && s.asked == nil {
		s.settled() // as in interrupted
		return
	}
	s.fail(1, "the job was cancelled: "+err.Error())
}

func (s *supervisor) fail(code int, text string) {
	if s.note(code, text, nil) {
		s.end(syscall.SIGTERM)
	}
}

// say prints a text, behind those before it, beside the supervisor: ranks are signalled also where
// a line of theirs that nobody reads holds the output.
func (s *supervisor) say(text string, r *rank) {
	s.sayFound(func() string { return text }, r)
}

// sayFound is say of a text that takes time to find.
func (s *supervisor) sayFound(text func() string, r *rank) {
	before, said := s.said, make(chan struct{})
	s.said = said
	go func() {
		defer close(said)
		if before != nil {
			<-before
		}
		if r != nil {
			<-r.passed
		}
		found := text()
		s.output.Lock()
		defer s.output.Unlock()
		fmt.Fprintf(s.opt.Stderr, "tagmatch: %s\n", found)
	}()
}

// end sends sig to all remaining ranks, and later SIGKILL.
func (s *supervisor) end(sig syscall.Signal) {
	s.ending = true
	for _, r := range s.ranks {
		if r.running && (!r.leaving || sig == syscall.SIGKILL) {
			r.end(sig)
		}
	}
	if sig != syscall.SIGKILL {
		s.next = syscall.SIGKILL
		s.timer.Reset(s.opt.Grace)
	}
}
