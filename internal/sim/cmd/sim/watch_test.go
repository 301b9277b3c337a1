package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/sim"
)

// hanging is a world that does not end before the test.
func hanging(t *testing.T, when func(*sim.Plan) bool) world {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	return func(p *sim.Plan, log io.Writer) (*sim.Outcome, error) {
		if when(p) {
			<-release
			if log != nil {
				fmt.Fprintln(log, "too late")
			}
		}
		return &sim.Outcome{}, nil
	}
}

// TestHangs checks that a world that does not end fails, wherever it is played, and is abandoned.
func TestHangs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, sim.NewPlan(7).Save(file))
	seven := func(p *sim.Plan) bool { return p.Seed == 7 }
	for _, c := range []struct {
		args []string
		what string
	}{
		{[]string{"-first", "5", "-seeds", "1000000000", "-j", "2"}, "seed 7"},
		{[]string{"-seed", "7", "-v"}, "seed 7"},
		{[]string{"-plan", file, "-v", "-shrink", "1m"}, "the plan in " + file},
	} {
		code, out, errs := playIn(t.Context(), t, hanging(t, seven), append(c.args, "-patience", "50ms")...)
		require.Equal(t, 1, code)
		require.Contains(t, errs, "sim: "+c.what+" does not end:\ngoroutine ")
		require.Contains(t, errs, "sim.hanging.func", "the stack")
		require.Contains(t, errs, "it does not end: it has been played for 50ms\nseed 7; replay ")
		require.NotContains(t, out, "passed")
	}
}

// TestLateOutput checks that an abandoned world prints no more.
func TestLateOutput(t *testing.T) {
	var b bytes.Buffer
	o := &output{w: &b}
	fmt.Fprint(o, "in time")
	require.NoError(t, o.close())
	_, err := fmt.Fprint(o, "too late")
	require.ErrorIs(t, err, errClosed)
	require.Equal(t, "in time", b.String())
}

// TestShrinkHangs checks that a plan that hangs when it is shrunk, or played again, is reported
// beside the first failure.
func TestShrinkHangs(t *testing.T) {
	steps := len(sim.NewPlan(7).Steps)
	for _, c := range []struct {
		hangs func(p *sim.Plan, runs int) bool
		want  []string
		plan  int // steps of the saved plan
	}{
		{func(p *sim.Plan, _ int) bool { return len(p.Steps) < steps }, []string{"a smaller plan of seed 7 does not end:\ngoroutine ",
			"sim: it fails\na smaller plan fails otherwise: it does not end\nreplay that with: "}, steps - steps/2},
		{func(_ *sim.Plan, runs int) bool { return runs == 2 }, []string{"sim: seed 7, played again, does not end:\ngoroutine ",
			"sim: it fails\na plan that does not always do the same: when played again, it does not end\nseed 7; replay "}, steps},
	} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		runs := 0
		hang := hanging(t, func(*sim.Plan) bool { return true })
		w := func(p *sim.Plan, log io.Writer) (*sim.Outcome, error) {
			if runs++; c.hangs(p, runs) {
				return hang(p, log)
			}
			return nil, errors.New("it fails")
		}
		code, _, errs := playIn(t.Context(), t, w, "-seed", "7", "-patience", "50ms")
		require.Equal(t, 1, code)
		for _, want := range c.want {
			require.Contains(t, errs, want)
		}
		saved, err := sim.Load(filepath.Join(dir, "sim-7.json"))
		require.NoError(t, err)
		require.Len(t, saved.Steps, c.plan)
	}
}

// TestInterrupt checks that an interrupted campaign reports what it has played.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := func(p *sim.Plan, log io.Writer) (*sim.Outcome, error) {
		if p.Seed == 30 {
			cancel()
		}
		return sim.Run(p, log)
	}
	code, out, errs := playIn(ctx, t, w, "-first", "1", "-seeds", "1000000000", "-j", "1")
	require.Equal(t, 130, code)
	require.Contains(t, out, "\n30 seeds in ")
	require.Contains(t, out, "matched by a device")
	require.Equal(t, "sim: interrupted: 999999970 seeds of 1000000000 were not played\n", errs)

	synctest.Test(t, func(t *testing.T) { // the patience takes no real time here
		start := time.Now()
		code, _, errs = playIn(ctx, t, hanging(t, func(*sim.Plan) bool { return true }), "-seed", "7")
		require.Equal(t, 130, code)
		require.Equal(t, "sim: interrupted\n", errs)
		require.Equal(t, grace, time.Since(start))

		ctx, cancel := context.WithCancel(t.Context())
		hangs := hanging(t, func(*sim.Plan) bool { cancel(); return true })
		code, out, errs = playIn(ctx, t, hangs, "-first", "7", "-seeds", "3", "-j", "1")
		require.Equal(t, 130, code)
		require.Contains(t, out, "\n0 seeds in 5s\n")
		require.Equal(t, "sim: interrupted: 3 seeds of 3 were not played\n", errs)
	})
}

// TestInterruptedShrink checks that an interrupt ends the shrinking of a failure, but not its
// report.
func TestInterruptedShrink(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for after := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		w := func(*sim.Plan, io.Writer) (*sim.Outcome, error) {
			if runs++; runs == 1+after {
				cancel()
			}
			return nil, errors.New("it fails")
		}
		code, _, errs := playIn(ctx, t, w, "-first", "7", "-seeds", "3", "-j", "1")
		require.Equal(t, 1, code)
		require.Regexp(t, "^sim: it fails\nseed 7; replay what is left of it with: .*\n$", errs)
	}
}

// TestSignals checks what interrupts do to the command itself.
func TestSignals(t *testing.T) {
	t.Setenv(envChild, "1")
	t.Setenv("TMPDIR", t.TempDir())
	forever := filepath.Join(t.TempDir(), "forever.json")
	p := sim.NewPlan(7)
	p.Steps = []sim.Step{{Do: sim.OpPoll, N: math.MaxInt}}
	require.NoError(t, p.Save(forever))

	errs, out, state := interrupted(t, 1, "-seeds", "1000000000", "-first", "1")
	require.Equal(t, 130, state.ExitStatus())
	require.Contains(t, errs, "sim: interrupted: ")
	require.Regexp(t, `\n[0-9]+ seeds in `, out)
	require.Contains(t, out, "messages received")
	_, _, state = interrupted(t, 2, "-plan", forever, "-v")
	require.True(t, state.Signaled(), state)
	require.Equal(t, syscall.SIGINT, state.Signal())
}

// interrupted runs the command and interrupts it a number of times: first when it has printed
// something, then when it has printed that it ends.
func interrupted(t *testing.T, times int, args ...string) (errs, out string, state syscall.WaitStatus) {
	cmd := exec.Command(os.Args[0], args...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // after a failure of the test
	first, err := bufio.NewReader(io.LimitReader(stdout, 1)).ReadString(0)
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, first, 1)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	lines := bufio.NewReader(stderr)
	for range times - 1 {
		for !strings.Contains(errs, "interrupt again to end at once") { // printed only once
			errs, err = lines.ReadString('\n')
			require.NoError(t, err)
		}
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
	}
	b, err := io.ReadAll(stdout)
	require.NoError(t, err)
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	_ = cmd.Wait() // its state has more
	return errs + string(rest), first + string(b), cmd.ProcessState.Sys().(syscall.WaitStatus)
}
