package launch

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// TestBlame: the blamed rank does not depend on the order in which the launcher learns of the ends.
func TestBlame(t *testing.T) {
	gone := func(rank, code int, reason string) event {
		return event{rank: rank, kind: rankGone, code: code, killed: strings.HasPrefix(reason, "was killed"), reason: reason}
	}
	ended := func(rank int) event { return event{rank: rank, kind: rankEnded} }
	said := func(rank int, s link.State) event { return event{rank: rank, kind: rankSaid, state: s} }
	lost := func(rank, peer int) event { return event{rank: rank, kind: rankLost, peer: peer} }
	abort := func(rank, code int) event { return event{rank: rank, kind: rankAbort, code: code, reason: "no paper"} }
	const seven, one, killed = "exited with code 7", "exited with code 1", "was killed by a signal: killed"
	tests := []struct {
		name   string
		events []event
		code   int
		want   string
	}{
		{"one", []event{ended(1), gone(1, 7, seven)}, 7, "rank 1 exited with code 7"},
		{"a rank that was killed is heard of after one that noticed", []event{ended(0), ended(1), gone(0, 1, one), gone(1, 137, killed)},
			137, "rank 1 was killed by a signal: killed"},
		{"two fail", []event{ended(1), ended(0), gone(0, 1, one), gone(1, 7, seven)}, 7, "rank 1 exited with code 7"},
		{"two fail, in order", []event{ended(0), ended(1), gone(0, 1, one), gone(1, 7, seven)}, 1, "rank 0 exited with code 1"},
		{"another ends well meanwhile", []event{ended(1), ended(0), gone(0, 1, one), gone(1, 0, "")}, 1, "rank 0 exited with code 1"},
		{"programs of another kind", []event{ended(1), gone(1, 0, ""), ended(0), gone(0, 1, one)}, 1, "rank 0 exited with code 1"},
		{"without Shutdown", []event{said(0, link.Joined), said(1, link.Joined), ended(1), gone(1, 0, ""), ended(0), gone(0, 1, one)},
			1, "rank 1 ended with code 0, but without Shutdown; rank 0 exited with code 1"},
		{"after Close", []event{said(0, link.Joined), said(1, link.Closed), said(2, link.Closed), ended(0), gone(0, 1, one)},
			1, "ranks 1, 2 left the job without a complete Shutdown; rank 0 exited with code 1"},
		{"after the end", []event{said(0, link.Finished), said(1, link.Finished), ended(1), gone(1, 0, ""), ended(0), gone(0, 1, one)},
			1, "rank 0 exited with code 1"},
		{"never joined", []event{said(0, link.Joining), said(2, link.Joining), ended(0), gone(0, 1, one)},
			1, "rank 1 did not join the job; rank 0 exited with code 1"},
		{"ended without joining", []event{said(0, link.Joining), said(2, link.Joining), ended(1), gone(1, 0, ""), ended(0), gone(0, 1, one)},
			1, "rank 1 ended with code 0 without having joined the job; rank 0 exited with code 1"},
		{"killed, and another left before", []event{said(0, link.Joined), said(1, link.Closed), said(2, link.Joined), ended(2), gone(2, 137, killed)},
			137, "rank 2 was killed by a signal: killed"},
		{"killed, and those that noticed end first", []event{lost(0, 1), ended(0), gone(0, 1, one), lost(2, 1), ended(2), gone(2, 1, one), ended(1),
			gone(1, 137, killed)}, 137, "rank 1 was killed by a signal: killed"},
		{"panic after Close", []event{said(1, link.Closed), lost(0, 1), ended(0), gone(0, 1, one), lost(2, 0), ended(2), gone(2, 1, one), lost(1, 0),
			ended(1), gone(1, 2, "exited with code 2")}, 2, "rank 1 exited with code 2"},
		{"panic after Close that takes long", []event{said(0, link.Joined), said(1, link.Closed), lost(0, 1), ended(0), gone(0, 1, one)},
			1, "rank 1 left the job without a complete Shutdown; rank 0 exited with code 1"},
		{"exit, and those that noticed end first", []event{lost(0, 1), lost(2, 1), ended(2), ended(0), gone(2, 1, one), gone(0, 1, one), ended(1),
			gone(1, 7, seven)}, 7, "rank 1 exited with code 7"},
		{"the first of two that noticed nothing", []event{lost(0, 1), ended(0), ended(2), ended(1), gone(0, 1, one), gone(1, 7, seven), gone(2, 1, one)},
			1, "rank 2 exited with code 1"},
		{"each has lost the other", []event{lost(0, 1), lost(1, 0), ended(1), ended(0), gone(0, 1, one), gone(1, 7, seven)},
			7, "rank 1 exited with code 7"},
		{"code 255 is no signal", []event{ended(0), ended(1), gone(1, 255, "exited with code 255"), gone(0, 1, one)}, 1, "rank 0 exited with code 1"},
		{"code 255, and one that noticed", []event{said(1, link.Joined), said(2, link.Closed), lost(0, 1), ended(0), gone(0, 1, one), ended(1),
			gone(1, 255, "exited with code 255")}, 255,
			"rank 2 left the job without a complete Shutdown; rank 1 exited with code 255"},
		{"killed after it had noticed", []event{lost(0, 1), ended(0), gone(0, 134, "was killed by a signal: aborted"), ended(1), gone(1, 7, seven)},
			7, "rank 1 exited with code 7"},
		{"the lost rank ended with 0", []event{said(0, link.Joined), said(1, link.Joined), said(2, link.Joined), ended(1), gone(1, 0, ""),
			lost(2, 1), ended(2), gone(2, 7, seven), lost(0, 1), ended(0), gone(0, 1, one)},
			7, "rank 1 ended with code 0, but without Shutdown; rank 2 exited with code 7"},
		{"a rank that is none", []event{lost(0, -1), lost(0, 99), lost(0, 0), ended(0), ended(1), gone(0, 1, one), gone(1, 7, seven)},
			1, "rank 0 exited with code 1"},
		{"an abort after the end of one that noticed", []event{lost(0, 1), ended(0), gone(0, 1, one), abort(1, 5), ended(2), gone(2, 1, one)},
			5, "rank 1 aborted the job with code 5: no paper"},
		{"an abort before all", []event{abort(1, 0), ended(0), gone(0, 137, killed)}, 1, "rank 1 aborted the job with code 0: no paper"},
	}
	passed := make(chan struct{})
	close(passed)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := newSupervisor(&job{opt: &Options{Stderr: &out, Grace: 1}})
			defer s.timer.Stop()
			c := exec.Command("sleep", "60") // a rank that still runs
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			require.NoError(t, c.Start())
			defer func() {
				_ = c.Process.Kill()
				_ = c.Wait() // says that it was killed
			}()
			for n := range 3 {
				s.ranks = append(s.ranks, &rank{n: n, passed: passed, running: true, cmd: c})
			}
			for _, e := range tt.events {
				s.happened(e)
			}
			if s.failed != nil {
				s.settled()
			}
			s.hurry()
			require.NotNil(t, s.said)
			<-s.said
			require.Equal(t, "tagmatch: "+tt.want+"\n", out.String())
			require.Equal(t, tt.code, s.code)
		})
	}
}

// TestAfterSettling: reports that arrive while exited ranks are not all read to the end.
func TestAfterSettling(t *testing.T) {
	first := event{rank: 0, kind: rankGone, code: 1, reason: "exited with code 1"}
	tests := []struct {
		name   string
		events []event
		code   int
		want   string
	}{
		{"an abort", []event{{rank: 1, kind: rankAbort, code: 5, reason: "no paper"}, first}, 5, "rank 1 aborted the job with code 5: no paper"},
		{"the end of a rank that was asked to end after its Close", []event{{rank: 1, kind: rankSaid, state: link.Closed},
			{rank: 1, kind: rankGone, code: 143, killed: true, reason: "was killed by a signal: terminated"}, first},
			1, "rank 1 left the job without a complete Shutdown; rank 0 exited with code 1"},
	}
	passed := make(chan struct{})
	close(passed)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := newSupervisor(&job{opt: &Options{Stderr: &out, Grace: 1}})
			defer s.timer.Stop()
			a := &rank{n: 0, passed: passed, order: 1, running: true, state: link.Joined}
			b := &rank{n: 1, passed: passed, running: true, state: link.Joined}
			c := &rank{n: 2, passed: passed, order: 2, code: 1, reason: "exited with code 1"}
			s.ranks, s.failed, s.asked, s.ending = []*rank{a, b, c}, c, []*rank{a, c}, true
			for _, e := range tt.events {
				s.happened(e)
			}
			require.NotNil(t, s.said)
			<-s.said
			require.Equal(t, "tagmatch: "+tt.want+"\n", out.String())
			require.Equal(t, tt.code, s.code)
		})
	}
}

// TestWhileOneLeaves: what other ranks do because the launcher ends them is not the cause, and a
// signal to the launcher ends the rank that is awaited as it does others.
func TestWhileOneLeaves(t *testing.T) {
	var out bytes.Buffer
	s := newSupervisor(&job{opt: &Options{Stderr: &out, Grace: time.Hour}})
	defer s.stopTimers()
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	passed := make(chan struct{})
	close(passed)
	for n := range 3 {
		s.ranks = append(s.ranks, &rank{n: n, passed: passed, running: true, cmd: c, reaped: n != 1})
	}
	for _, e := range []event{{rank: 0, kind: rankSaid, state: link.Joined}, {rank: 1, kind: rankSaid, state: link.Closed}, {rank: 0, kind: rankEnded},
		{rank: 0, kind: rankGone, code: 5, reason: "exited with code 5"}} {
		s.happened(e)
	}
	s.settled()
	s.happened(event{rank: 2, kind: rankAbort, code: 1, reason: "context canceled"})
	require.Nil(t, s.said, "rank 1 is awaited")
	s.interrupted(syscall.SIGTERM)
	require.NotNil(t, s.said)
	<-s.said
	require.Equal(t, "tagmatch: rank 1 left the job without a complete Shutdown; rank 0 exited with code 5\n", out.String())
	_ = c.Wait() // says how it was ended
	require.Equal(t, syscall.SIGTERM, c.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// TestReportsWaitBesides: the supervisor goes on while nobody takes the output.
func TestReportsWaitBesides(t *testing.T) {
	for name, happen := range map[string]func(*supervisor){
		"fail":      func(s *supervisor) { s.fail(1, "x") },
		"abort":     func(s *supervisor) { s.happened(event{kind: rankAbort, code: 5}) },
		"interrupt": func(s *supervisor) { s.interrupted(syscall.SIGINT) },
	} {
		var out bytes.Buffer
		s := newSupervisor(&job{opt: &Options{Stderr: &out, Grace: time.Hour}, ranks: []*rank{{}}})
		s.output.Lock() // as a writer that nobody reads
		happen(s)
		require.NotZero(t, s.next, "%s: nothing follows", name)
		s.output.Unlock()
		<-s.said
		require.NotEmpty(t, out.String(), name)
		s.timer.Stop()
	}
}

// TestReasonFollowsOutput: the reason is printed behind the output of the rank that is to blame.
func TestReasonFollowsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newSupervisor(&job{opt: &Options{Stderr: &out}})
		r := &rank{passed: make(chan struct{})}
		s.note(3, "x", r)
		synctest.Wait()
		require.Empty(t, out.String())
		close(r.passed)
		<-s.said
		require.Equal(t, "tagmatch: x\n", out.String())
	})
}
