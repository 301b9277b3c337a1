package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/sim"
)

func play(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
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

// table is the output without its first two lines, which say how long it took.
func table(out string) []string { return strings.Split(out, "\n")[2:] }

func TestBudget(t *testing.T) {
	code, out, errs := play("-seeds", "1000000000", "-budget", "50ms")
	require.Zero(t, code, errs)
	require.Contains(t, out, "seeds in")
	require.Regexp(t, "seeds of 1000000000 were not played\n$", out)
	_, out, _ = play("-seeds", "10", "-budget", "1h")
	require.NotContains(t, out, "were not played")
}

// TestMissing checks that many seeds must come to everything.
func TestMissing(t *testing.T) {
	var c sim.Coverage
	for i := range c {
		c[i] = 1
	}
	require.NoError(t, missing(enough, &c))
	c[sim.Rests] = 0
	require.NoError(t, missing(enough-1, &c))
	require.ErrorContains(t, missing(enough, &c), "never came to: [rests after thrashing]")
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
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-seeds", "x"}, {"-no"}, {"more"}, {"-j", "0"}, {"-seeds", "0"}, {"-seed", "0", "-plan", "x"}, {"-v"}, {"-seed", "1", "-plan", "x"}} {
		code, out, errs := play(args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out)
		require.True(t, strings.HasPrefix(errs, "sim: ") && strings.HasSuffix(errs, "(-h lists the flags)\n"), errs)
	}
	code, _, errs := play("-h")
	require.Zero(t, code)
	require.Contains(t, errs, "-budget time")
	code, _, errs = play("-plan", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "none")
}

// TestExplain checks what is said of a seed that fails: here one that failed once only.
func TestExplain(t *testing.T) {
	var out bytes.Buffer
	t.Setenv("TMPDIR", t.TempDir())
	f := &flags{}
	err := f.explain(&out, sim.NewPlan(3), errors.New("it fails"))
	require.ErrorContains(t, err, "it fails\nseed 3; replay")
	require.Equal(t, invariant.Enabled, strings.Contains(err.Error(), ": go run -tags invariants ./internal/sim/cmd/sim -v -plan "), "as it was found")
	file := err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:]
	p, err := sim.Load(file)
	require.NoError(t, err)
	require.Equal(t, sim.NewPlan(3), p)
}

// TestHangs checks that a world that does not end fails the campaign.
func TestHangs(t *testing.T) {
	c := newCampaign(&flags{workers: 2, seeds: 2})
	seed, ok := c.take(1)
	require.True(t, ok)
	require.False(t, c.hangs())
	c.mu.running[1].since = time.Now().Add(-2 * patience)
	require.True(t, c.hangs())
	require.ErrorIs(t, c.mu.err, errHangs)
	require.Equal(t, seed, c.mu.failed)
	_, ok = c.take(0)
	require.False(t, ok, "no more seeds are played")
}
