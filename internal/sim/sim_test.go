package sim

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/progress"
)

var oneSeed = flag.Uint64("seed", 0, "TestSeeds: play this `seed` only")

func replay(seed uint64) string { return Replay(fmt.Sprintf("-seed %d", seed)) }

// TestSeeds plays random seeds; cmd/sim plays more of them.
func TestSeeds(t *testing.T) { playSeeds(t, false) }

// TestNICs does the same on devices that behave as NICs do.
func TestNICs(t *testing.T) { playSeeds(t, true) }

func playSeeds(t *testing.T, nic bool) {
	flags := ""
	if nic {
		flags = "-nic "
	}
	first, n := uint64(time.Now().UnixNano()), uint64(600/testlevel.Effort)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "seed" {
			first, n = *oneSeed, 1
		}
	})
	for seed := first; seed < first+n; seed++ {
		p := NewPlan(seed)
		p.Params.NIC = nic
		_, err := Run(p, nil)
		require.NoError(t, err, "replay with: %s", Replay(flags+fmt.Sprintf("-seed %d", seed)))
	}
}

// TestCoverage checks that runs reach all events.
func TestCoverage(t *testing.T) {
	testlevel.SkipIfQuick(t)
	const seeds uint64 = 3000 / min(testlevel.Effort, 3) // fewer would not reach the rarest
	var c Coverage
	for seed := range seeds {
		out, err := Run(NewPlan(seed), nil)
		require.NoError(t, err, "replay with: %s", replay(seed))
		c.Add(&out.Coverage)
	}
	require.Empty(t, c.Missing(false), "%s", &c)
}

// TestReplays checks that a plan determines everything, also after Save and Load, and that seeds
// differ.
func TestReplays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	traces := map[uint64]bool{}
	const n = 60
	for seed := range uint64(n) {
		p := NewPlan(seed)
		a, err := Run(p, nil)
		require.NoError(t, err, "replay with: %s", replay(seed))
		require.NoError(t, p.Save(file))
		p, err = Load(file)
		require.NoError(t, err)
		b, err := Run(p, nil)
		require.NoError(t, err, "replay with: %s", replay(seed))
		require.Equal(t, a, b, "seed %d", seed)
		traces[a.Trace] = true
	}
	require.Len(t, traces, n)
}

// TestPlans plays the plans of testdata. A plan with a number in its name was shrunk from one that
// detected that bug of internal/mutations, and still detects it; the others once failed without a
// bug.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			p, err := Load(file)
			require.NoError(t, err)
			_, err = Run(p, nil)
			require.NoError(t, err, "%s", p)
		})
	}
}

// TestLoadRefuses checks that a file that is not a plan is refused.
func TestLoadRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	for _, change := range []func(p *Plan){
		func(p *Plan) { p.Params.Ranks = 17 },
		func(p *Plan) { p.Params.Transport = "ud" },
		func(p *Plan) { p.Steps[0].Rank = -1 },
		func(p *Plan) { p.Steps[0].Do = "jump" },
	} {
		p := NewPlan(1)
		change(p)
		require.NoError(t, p.Save(file))
		_, err := Load(file)
		require.ErrorContains(t, err, file)
	}
	_, err := Load(filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
}

// TestShrink checks that of many steps only the necessary ones stay.
func TestShrink(t *testing.T) {
	p := NewPlan(5)
	for i := range 40 {
		p.Steps = append(p.Steps, Step{Do: OpPoll, N: i})
	}
	play := func(p *Plan) error {
		sum := 0
		for _, s := range p.Steps {
			if s.N == 7 || s.N == 31 {
				sum += s.N
			}
		}
		switch {
		case sum < 38:
			return nil
		case p.Params.Ranks < 3:
			return errors.New("another failure, since it has another kind")
		}
		return fail("some kind", "%d ranks", p.Params.Ranks)
	}
	p.Params.Ranks = 16
	small, err := Shrink(t.Context(), p, play(p), play)
	require.Equal(t, "some kind", KindOf(err))
	require.Len(t, small.Steps, 2)
	require.Equal(t, 3, small.Params.Ranks)
	require.Len(t, p.Steps, 40+len(NewPlan(5).Steps), "the plan itself stays")
	require.NotEmpty(t, fmt.Sprint(small))
}

// TestLeftBehind checks that a message that waits beside a receive that matches it is detected,
// although both end.
func TestLeftBehind(t *testing.T) {
	for tag, good := range map[uint64]bool{4: true, 5: false} {
		w := newWorld(NewPlan(1))
		w.ranks = []*rank{{id: 0}, {id: 1}}
		sent := &op{send: true, pattern: pattern{peer: 1, tag: 5}, done: true}
		left := &op{pattern: pattern{peer: 0, tag: tag, mask: ^uint64(0)}, unmatched: true, done: true, err: progress.ErrCanceled}
		drained := &op{pattern: pattern{peer: progress.AnySource}, done: true, st: progress.Status{Source: 0, Tag: 5}}
		w.ranks[0].ops, w.ranks[1].ops = []*op{sent}, []*op{left, drained}
		if err := w.checkHistory(w.ranks[1], false); good {
			require.NoError(t, err)
		} else {
			require.Equal(t, "matching", KindOf(err))
		}
	}
}
