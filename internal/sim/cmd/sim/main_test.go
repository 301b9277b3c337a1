package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/sim"
)

func play(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(context.Background(), args, &o, &e)
	return code, o.String(), e.String()
}

// playIn runs the command with other worlds than those of package sim.
func playIn(ctx context.Context, t *testing.T, w world, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	f, err := parse(args, &e)
	require.NoError(t, err)
	c := &command{flags: f, stdout: &output{w: &o}, stderr: &e, world: w}
	code = c.run(ctx)
	return code, o.String(), e.String()
}

// envChild makes this test binary the command sim, for tests of signals.
const envChild = "SIM_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestCampaign(t *testing.T) {
	code, out, errs := play("-seeds", "40", "-first", "1", "-j", "3")
	require.Zero(t, code, errs)
	require.Contains(t, out, "seeds from 1, 3 worlds at once")
	require.Contains(t, out, "40 seeds in ")
	require.Contains(t, out, "matched by a device")
	code, again, _ := play("-seeds", "40", "-first", "1", "-j", "1")
	require.Zero(t, code)
	require.Equal(t, table(out), table(again), "the table depends on the seeds alone")
}

// table is the output without its first two lines, which contain times.
func table(out string) []string { return strings.Split(out, "\n")[2:] }

func TestBudget(t *testing.T) {
	code, out, errs := play("-seeds", "1000000000", "-budget", "50ms")
	require.Zero(t, code, errs)
	require.Contains(t, out, "seeds in")
	require.Regexp(t, "seeds of 1000000000 were not played\n$", out)
	_, out, _ = play("-seeds", "10", "-budget", "1h")
	require.NotContains(t, out, "were not played")
}

// TestMissing checks that many seeds must reach all events.
func TestMissing(t *testing.T) {
	var c sim.Coverage
	for i := range c {
		c[i] = 1
	}
	require.NoError(t, missing(enough, c.Missing(false)))
	c[sim.Revoked] = 0
	require.Error(t, missing(enough, c.Missing(false)))
	require.NoError(t, missing(enough, c.Missing(true)), "no NIC can")
	c[sim.Rests] = 0
	require.NoError(t, missing(enough-1, c.Missing(true)))
	require.ErrorContains(t, missing(enough, c.Missing(true)), "never came to: [rests after thrashing]")
}

func TestReplay(t *testing.T) {
	code, out, errs := play("-seed", "0", "-v")
	require.Zero(t, code, errs)
	require.Contains(t, out, sim.NewPlan(0).String())

	code, quiet, errs := play("-seed", "3")
	require.Zero(t, code, errs)
	code, out, errs = play("-seed", "3", "-v")
	require.Zero(t, code, errs)
	require.Contains(t, out, sim.NewPlan(3).String())
	require.Contains(t, out, "settle\n")
	require.True(t, strings.HasSuffix(out, quiet), "the same trace")

	file := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, sim.NewPlan(3).Save(file))
	code, out, errs = play("-plan", file)
	require.Zero(t, code, errs)
	require.Equal(t, quiet, out)

	code, out, errs = play("-seed", "3", "-nic", "-v")
	require.Zero(t, code, errs)
	require.Contains(t, out, `"NIC": true`)
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-seeds x":              `invalid value "x" for flag -seeds`,
		"-seeds -5":             `invalid value "-5" for flag -seeds`,
		"-no":                   "-no",
		"more":                  `unexpected argument "more"`,
		"-j 0":                  "-j is 0",
		"-j -1":                 "-j is -1",
		"-seeds 0":              "-seeds is 0",
		"-budget -1s":           "-budget is -1s",
		"-shrink -1s":           "-shrink is -1s",
		"-patience 0":           "-patience is 0s",
		"-plan=":                "-plan names no file",
		"-v":                    "-v is for -seed and -plan",
		"-seed 0 -plan x":       "-plan and -seed exclude each other",
		"-plan x -nic":          "-nic is for seeds: a plan says itself what its devices are",
		"-seed 5 -seeds 10":     "-seeds is for many seeds, -seed plays one world: leave one of them out",
		"-seed 5 -first 3":      "-first is for many seeds, -seed plays",
		"-seed 5 -j 1":          "-j is for many seeds, -seed plays",
		"-plan x -budget 1s -v": "-budget is for many seeds, -plan plays",
		"-plan x -first 0":      "-first is for many seeds, -plan plays",
	} {
		code, out, errs := play(strings.Fields(args)...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out)
		require.True(t, strings.HasPrefix(errs, "sim: ") && strings.HasSuffix(errs, "(-h lists the flags)\n"), errs)
		require.Contains(t, errs, want)
	}
	code, _, errs := play("-h")
	require.Zero(t, code)
	require.Contains(t, errs, "-budget time")
	code, _, errs = play("-plan", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "none")
}

// TestExplain checks the report of a failing seed: here one that failed only once.
func TestExplain(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := &command{flags: &flags{}}
	err := c.explain(t.Context(), sim.NewPlan(3), errors.New("it fails"))
	require.ErrorContains(t, err, "it fails\nseed 3; replay")
	require.Equal(t, invariant.Enabled, strings.Contains(err.Error(), ": go run -tags invariants ./internal/sim/cmd/sim -v -plan "), "as it was found")
	file := err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:]
	p, err := sim.Load(file)
	require.NoError(t, err)
	require.Equal(t, sim.NewPlan(3), p)
}

// TestUnsteady checks that a failure that does not happen again, or differently, is reported.
func TestUnsteady(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for text, next := range map[string]error{
		"it did not fail when played again":                         nil,
		"it failed otherwise when played again: another: next time": &sim.Failure{Kind: "another", Err: errors.New("next time")},
	} {
		runs := 0
		unsteady := func(p *sim.Plan, _ io.Writer) (*sim.Outcome, error) {
			if p.Seed != 7 {
				return &sim.Outcome{}, nil
			}
			if runs++; runs == 1 {
				return nil, errors.New("it fails")
			}
			return &sim.Outcome{}, next
		}
		code, out, errs := playIn(t.Context(), t, unsteady, "-first", "5", "-seeds", "10", "-j", "1")
		require.Equal(t, 1, code)
		require.Contains(t, out, "3 seeds in ")
		require.Contains(t, out, "seed 7 fails\n")
		for _, want := range []string{"sim: it fails\n", text, "\nseed 7; replay ",
			"sim-7.json\nit was found with: -first 5 -seeds 3 -j 1\n"} {
			require.Contains(t, errs, want)
		}
		require.NotContains(t, errs, "%!")
	}
}

// TestReplayKeeps checks that a plan from a file is shrunk only if asked for, and that the file
// stays.
func TestReplayKeeps(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	file := filepath.Join(dir, "sim-3.json")
	p := sim.NewPlan(3)
	p.Steps = p.Steps[:9] // by hand
	require.NoError(t, p.Save(file))
	given, err := os.ReadFile(file)
	require.NoError(t, err)
	runs := 0
	fails := func(*sim.Plan, io.Writer) (*sim.Outcome, error) { runs++; return nil, errors.New("it fails") }

	code, out, errs := playIn(t.Context(), t, fails, "-v", "-plan", file)
	require.Equal(t, 1, code)
	require.Equal(t, 1, runs)
	require.Equal(t, p.String()+"\n", out, "the plan, once")
	require.Equal(t, "sim: it fails\nseed 3; replay it with: "+sim.Replay("-plan "+file)+"\n", errs)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)

	_, _, errs = playIn(t.Context(), t, fails, "-plan", file, "-shrink", "1m")
	require.Contains(t, errs, "replay what is left of it with: "+sim.Replay("-plan "+filepath.Join(dir, "sim-3-2.json")))
	small, err := sim.Load(filepath.Join(dir, "sim-3-2.json"))
	require.NoError(t, err)
	require.Empty(t, small.Steps)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, given, after)

	runs = 0
	_, out, _ = playIn(t.Context(), t, fails, "-seed", "3", "-shrink", "0", "-v")
	require.Equal(t, 1, runs)
	require.Equal(t, 1, strings.Count(out, "seed 3"))

	once := func(*sim.Plan, io.Writer) (*sim.Outcome, error) {
		if runs++; runs%2 == 1 {
			return nil, errors.New("it fails")
		}
		return &sim.Outcome{}, nil
	}
	runs = 0
	_, out, _ = playIn(t.Context(), t, once, "-seed", "3", "-v")
	require.Equal(t, 1, strings.Count(out, "seed 3"), "no smaller plan")
	_, out, _ = playIn(t.Context(), t, once, "-seed", "3")
	require.Equal(t, 4, runs)
	require.Equal(t, 1, strings.Count(out, "seed 3"))
}
