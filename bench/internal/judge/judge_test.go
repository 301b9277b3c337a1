package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// fake is a peer whose latency is given.
type fake struct {
	name string
	us   float64
	err  error
	runs []int // iterations
	ran  func()
}

func (f *fake) Name() string                                { return f.name }
func (f *fake) Version() string                             { return "1" }
func (f *fake) Can(peers.Job) bool                          { return true }
func (f *fake) Command(_ peers.Job, _ int, _ [2]int) string { return "fake" }

func (f *fake) Run(_ context.Context, _ peers.Job, iters int, _ [2]int) (peers.Sample, error) {
	f.runs = append(f.runs, iters)
	if f.ran != nil {
		f.ran()
	}
	return peers.Sample{"mid_us": f.us, "call_us": f.us}, f.err
}

// script is a program that prints a line, in place of bench.
func script(t *testing.T, line string) Program {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bench")
	require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\necho '"+line+"'\n"), 0o700))
	return Program{Path: name, Env: "GOMAXPROCS=7"}
}

// hops is a probe that tells these, the last for ever.
func hops(list ...time.Duration) func([2]int) (time.Duration, error) {
	return func([2]int) (time.Duration, error) {
		now := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		return now, nil
	}
}

func TestMeasure(t *testing.T) {
	slow, fast := &fake{name: "openmpi", us: 3}, &fake{name: "ucx", us: 2}
	j := &Judge{Rounds: 4, Sample: 100 * time.Millisecond, Self: script(t, `{"mid_us":2.4,"ok":true}`), Peers: []peers.Peer{slow, fast},
		probe: hops(100)}
	res := j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Empty(t, res.Errors)
	require.Equal(t, "ucx", res.Best)
	require.InDelta(t, 1.2, res.Ratio, 1e-9)
	require.InDelta(t, 0.8, res.References[0].Ratio, 1e-9)
	require.InDeltaSlice(t, []float64{100, 115}, res.HopNs[:], 1e-9)
	require.Equal(t, [3]any{Pass, false, 4}, [3]any{res.Verdict, res.AimReached, res.Ours.Accepted})
	// 2 us take 8 us a round and its repetition.
	require.Equal(t, []int{200, 12500, 12500, 12500, 12500}, fast.runs)

	var text, line bytes.Buffer
	require.NoError(t, (&Report{Out: &text}).Row(res))
	require.Regexp(t, `^shm-lat-8 +2\.400 us +- +ucx +1\.20 +- +1\.20 to 1\.20 +<= 1\.25 \(1\) pass +openmpi 3\.000 \(0\.80\) ucx 2\.000 \(1\.20\); samples 4\+4\+4, 0 dropped`, text.String())
	require.NoError(t, (&Report{Out: &line, JSON: true}).Row(res))
	var back Result
	require.NoError(t, json.Unmarshal(line.Bytes(), &back))
	require.Equal(t, [3]any{"compare", "shm-lat-8", "lat"}, [3]any{back.Test, back.Row, back.What})
	require.Len(t, back.References[1].Samples, 4)
}

// TestOrder has each contestant be the first, and each follow each other.
func TestOrder(t *testing.T) {
	var order []string
	note := func(name string) *fake { return &fake{name: name, us: 1, ran: func() { order = append(order, name) }} }
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"mid_us":1}`), Peers: []peers.Peer{note("ucx"), note("mpich")}, probe: hops(100)}
	j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Equal(t, "ucx mpich ucx mpich ucx mpich mpich ucx", strings.Join(order, " "), "after the first, which is for calibration")
}

func TestNoise(t *testing.T) {
	p := &fake{name: "ucx", us: 2}
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"mid_us":2.4}`), Peers: []peers.Peer{p},
		// Of the first round both samples, then one of the peer.
		probe: hops(100, 120, 100, 100, 100, 100, 130, 100)}
	res := j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Equal(t, [2]int{2, 1}, [2]int{res.Ours.Rejected, res.References[0].Rejected + res.References[0].Outside})
	require.GreaterOrEqual(t, res.Ours.Accepted, 3, "more rounds were made")
	require.Less(t, len(p.runs), 1+most*3)

	n := time.Duration(100)
	j.probe = func([2]int) (time.Duration, error) { n = 300 - n; return n, nil }
	p.runs = nil
	res = j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Equal(t, Noisy, res.Verdict)
	require.Len(t, p.runs, 1+most*3)
	var text bytes.Buffer
	require.NoError(t, (&Report{Out: &text}).Row(res))
	require.Contains(t, text.String(), "no samples of one quiet phase: of all 9 samples the ratios are ucx 1.20")
}

func TestWhoFails(t *testing.T) {
	good, bad := &fake{name: "ucx", us: 2}, &fake{name: "mpich", us: 1, err: errors.New("no such luck")}
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"mid_us":2}`), Peers: []peers.Peer{good, bad}, probe: hops(100)}
	res := j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Equal(t, []string{"mpich: no such luck"}, res.Errors)
	require.Equal(t, Missing, res.Verdict, "it may be the best")
	require.InDelta(t, 1.0, res.Ratio, 1e-9)

	j.Self = script(t, `{"p50_us":2}`)
	res = j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Contains(t, res.Errors[0], "ours: there is no mid_us in what GOMAXPROCS=7 bench lat -device shm")
	require.Equal(t, Missing, res.Verdict)

	j.Self.Path = filepath.Join(t.TempDir(), "none")
	var text bytes.Buffer
	require.NoError(t, (&Report{Out: &text}).Row(j.Measure(t.Context(), named(t, "shm-lat-8"))))
	require.Contains(t, text.String(), "not measured\n    ours: ")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Contains(t, j.Measure(ctx, named(t, "shm-lat-8")).Errors[0], context.Canceled.Error())
}

// named is a row of the table.
func named(t *testing.T, name string) Row {
	t.Helper()
	for _, r := range Table() {
		if r.Name == name {
			return r
		}
	}
	t.Fatal("no row " + name)
	return Row{}
}

func TestBase(t *testing.T) {
	// The script stands for both starts; the base is the better of its own lines only.
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"waiter":"none","p99_us":50}
{"waiter":"asleep","p99_us":80}
{"waiter":"busy","p99_us":125}`), probe: hops(100)}
	res := j.Measure(t.Context(), named(t, "echo-asleep"))
	require.Empty(t, res.Errors)
	require.Equal(t, "alone", res.Best)
	require.InDelta(t, 1.6, res.Ratio, 1e-9)
	require.Equal(t, Pass, res.Verdict)
	require.Equal(t, Fail, j.Measure(t.Context(), named(t, "echo-busy")).Verdict)
}

func TestShownIsNotJudged(t *testing.T) {
	p := &fake{name: "mpich", us: 1}
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"mid_us":2}`), Peers: []peers.Peer{p}, probe: hops(100)}
	res := j.Measure(t.Context(), named(t, "depth-posted-10k"))
	require.Equal(t, "depth 16", res.Best)
	require.InDelta(t, 1, res.Ratio, 1e-9)
	require.Equal(t, Pass, res.Verdict)
	require.Equal(t, [2]any{"mpich", true}, [2]any{res.References[1].Name, res.References[1].Shown})
	require.Equal(t, [3]any{10_000, "posted", 3}, [3]any{res.Depth, res.Kind, res.References[1].Accepted})
}

func TestWithoutReference(t *testing.T) {
	n := time.Duration(100)
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"msg_s":1e6,"cpu_pct":0.3}`),
		probe: func([2]int) (time.Duration, error) { n *= 2; return n, nil }} // nothing is ever quiet
	res := j.Measure(t.Context(), named(t, "idle-cpu"))
	require.Equal(t, [3]any{Pass, "", 3}, [3]any{res.Verdict, res.Best, res.Ours.Accepted})
	require.InDelta(t, 0.3, res.Ratio, 1e-9)
	require.Equal(t, Pass, j.Measure(t.Context(), named(t, "gc")).Verdict)
	var text bytes.Buffer
	require.NoError(t, (&Report{Out: &text}).Row(res))
	require.Contains(t, text.String(), "0.300 %               -  -")
	require.NotContains(t, text.String(), "hop")
}

func TestCollections(t *testing.T) {
	require.Equal(t, 2, collections("gc 1 @0.005s 2%: 0.1+1 ms clock\ngc 2 @1.250s 0%: x\nother gc 3 @4.000s \ngc 4 @12.5s 0%: (forced)\n"))
}

func TestCommands(t *testing.T) {
	row := named(t, "one-core")
	require.Equal(t, "bench lat -device shm -sizes 8 -onecore -iters 7 -json", strings.Join(row.ours.words("bench", 7), " "))
	require.NotContains(t, named(t, "idle-cpu").ours.words("bench", 0)[3:], "-iters 0")
	require.Contains(t, named(t, "shm-bw-4m-cold").ours.words("bench", 9), "-cold")
	require.Contains(t, named(t, "shm-bw-4m-sliding").ours.words("bench", 9), "-sliding")
}

// TestEachPeer: a row may have a mark for one peer beside that for the best.
func TestEachPeer(t *testing.T) {
	best, gloo := &fake{name: "mpich", us: 2}, &fake{name: "gloo", us: 2.5}
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"call_us":1.3}`), Peers: []peers.Peer{best, gloo}, probe: hops(100)}
	row := named(t, "coll-allreduce-4-shm-4k")
	require.Equal(t, "bench coll -device shm -sizes 4096 -op allreduce -n 4 -iters 7 -json", strings.Join(row.ours.words("bench", 7), " "))
	res := j.Measure(t.Context(), row)
	require.Equal(t, [3]any{"mpich", 0.65, Fail}, [3]any{res.Best, res.Ratio, res.Verdict})
	gloo.us = 2.6
	require.Equal(t, Pass, j.Measure(t.Context(), row).Verdict)
	best.us = 1.5
	require.Equal(t, Fail, j.Measure(t.Context(), row).Verdict)
	require.Equal(t, fewestCalls, iterations("call_us", peers.Sample{"call_us": 1e6}, time.Second))
	require.Equal(t, 500, iterations("call_us", peers.Sample{"call_us": 1e3}, 500*time.Millisecond))
}

// TestSettings: ours has the environment of its settings, and default ones are shown, not judged.
func TestSettings(t *testing.T) {
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"mid_us":'$GOMAXPROCS'}`), Peers: []peers.Peer{&fake{name: "ucx", us: 10}}, probe: hops(100)}
	j.Plain = &Program{Path: j.Self.Path, Env: "GOMAXPROCS=9"}
	res := j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Equal(t, [4]any{"ucx", 0.7, 1.25, Pass}, [4]any{res.Best, res.Ratio, res.Must, res.Verdict})
	require.True(t, strings.HasPrefix(res.Ours.Command, "GOMAXPROCS=7 bench lat -device shm"), res.Ours.Command)
	require.Equal(t, [3]any{Default, 9.0, true}, [3]any{res.References[0].Name, res.References[0].Median, res.References[0].Shown})
	var text bytes.Buffer
	require.NoError(t, (&Report{Out: &text}).Row(res))
	require.Regexp(t, `^shm-lat-8 +7\.000 us +9\.000 us +ucx +0\.70 +0\.90 .* ucx 10\.000 \(0\.70\); samples 3\+3\+3,`, text.String())

	j.Peers = nil // default settings are nobody to compare with
	res = j.Measure(t.Context(), named(t, "shm-lat-8"))
	require.Equal(t, [4]any{"", 0.0, 0.0, None}, [4]any{res.Best, res.Ratio, res.Must, res.Verdict})
}

// TestNobodyToCompareWith: where no peer takes part in a row, its mark says nothing of the figure.
func TestNobodyToCompareWith(t *testing.T) {
	j := &Judge{Rounds: 3, Sample: time.Millisecond, Self: script(t, `{"msg_s":1e6}`), probe: hops(100)}
	res := j.Measure(t.Context(), named(t, "shm-rate-8"))
	require.Equal(t, [4]any{1e6, 0.0, 0.0, None}, [4]any{res.Ours.Median, res.Ratio, res.Must, res.Verdict})
}

func TestPhase(t *testing.T) {
	at := func(hops ...float64) (list []Sample) {
		for _, h := range hops {
			list = append(list, Sample{Value: 1, Before: h, After: h})
		}
		return list
	}
	// Most samples are in the slow phase, but the second has few there.
	p, n := common([][]Sample{at(100, 110, 114, 300, 300, 300, 300, 300), at(105, 112, 300)})
	require.Equal(t, 2, n)
	require.InDelta(t, 100, p.low, 1e-9)
	p, n = common([][]Sample{at(300, 100), at(100, 300)})
	require.Equal(t, 1, n)
	require.InDelta(t, 100, p.low, 1e-9, "of equal ones the fastest")
	_, n = common([][]Sample{at(100), at(116)})
	require.Zero(t, n)
	_, n = common([][]Sample{{{Before: 100, After: 111}}})
	require.Zero(t, n, "probes disagree")
	_, n = common([][]Sample{{{Before: 110, After: 100}}})
	require.Equal(t, 1, n)
}

func TestStats(t *testing.T) {
	v := []float64{1, 2, 3, 4}
	require.Equal(t, [3]float64{1.75, 2.5, 4}, [3]float64{quantile(v, 0.25), quantile(v, 0.5), quantile(v, 1)})
	require.Zero(t, quantile(nil, 0.5))
	low, high := interval([]float64{2, 2, 2}, []float64{1, 1, 1})
	require.Equal(t, [2]float64{2, 2}, [2]float64{low, high})
	low, high = interval([]float64{8, 9, 10, 11, 12, 13, 14}, []float64{10, 10, 10})
	require.Less(t, low, 1.1)
	require.Greater(t, high, 1.1)
	require.Greater(t, low, 0.8)
	require.Less(t, high, 1.4)
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Table() {
		require.False(t, seen[r.Name], r.Name)
		seen[r.Name] = true
		require.NotEmpty(t, r.About, r.Name)
		require.NotEmpty(t, r.ours.args, r.Name)
		require.NotEmpty(t, r.metric, r.Name)
		require.True(t, r.job != nil || len(r.peers) == 0, r.Name)
		require.Contains(t, r.String(), r.About)
		if r.Must != 0 && r.Aim != 0 {
			require.True(t, r.reached(r.Aim, r.Must), "%s: the aim is beyond the mark", r.Name)
		}
	}
}

func TestReached(t *testing.T) {
	low, high := Row{metric: "mid_us"}, Row{metric: "msg_s"}
	require.True(t, low.reached(1, 1) && low.reached(0.9, 1) && high.reached(1, 1) && high.reached(1.1, 1))
	require.False(t, low.reached(1.1, 1) || high.reached(0.9, 1))
}

func TestIterations(t *testing.T) {
	rate := "msg_s"
	require.Equal(t, 100_000, iterations(rate, peers.Sample{"msg_s": 1e6}, 100*time.Millisecond))
	require.Equal(t, 2*window, iterations(rate, peers.Sample{"msg_s": 10}, 100*time.Millisecond))
	require.Equal(t, fewestIters, iterations("mid_us", peers.Sample{"mid_us": 1e6}, time.Millisecond))
	require.Equal(t, mostIters, iterations("mid_us", peers.Sample{"mid_us": 1e-6}, time.Second))
}

func TestHost(t *testing.T) {
	j := &Judge{Peers: []peers.Peer{&fake{name: "ucx"}}}
	var text bytes.Buffer
	require.NoError(t, (&Report{Out: &text}).Host(j.Host()))
	require.Contains(t, text.String(), "ucx 1")
	require.True(t, strings.HasPrefix(text.String(), "# "))
	require.NotEmpty(t, j.Host().Kernel)
}
